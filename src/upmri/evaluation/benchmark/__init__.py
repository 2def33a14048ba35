"""Every method on every scan, once, into a store; tables and figures from it in seconds."""
