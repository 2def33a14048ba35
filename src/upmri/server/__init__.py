"""MRD streaming: a server beside the scanner, and a client that sends scans to one.

The way of a scan, with the module of each step:

    socket ─wire─▶ messages ─order, assemble─▶ frames ─dispatch, process─▶ worker ─series, outgoing─▶ socket

For methods over time ``together`` keeps frames until their place is complete; ``making`` has the images of a job.
``connection`` serves one client, ``listen`` accepts all of them, and ``worker`` runs in a process of its own.
``limits`` has what a client may send and ask for; ``counters``, ``health`` and ``json_log`` are for administrators.
``client`` and ``sending`` send a scan to a server.
"""
