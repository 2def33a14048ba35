"""From a scan, a method and weights to a reconstruction: the one path that users, the server and benchmarks take."""
