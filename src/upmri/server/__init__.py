"""MRD streaming: a server beside the scanner, and a client that sends scans to one.

A connection's way, one direction, a file a step:

    socket ─protocol─▶ messages ─order, assemble─▶ frames ─dispatch─▶ worker (a process of its own) ─images─▶ socket

``connection`` is one client's reader and writer, ``listen`` the process around them all, ``limits`` what a peer may ask
for; ``client`` and ``sending`` are the other side.
"""
