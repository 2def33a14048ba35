"""Files from outside are parsed in a child process, which has limits and sees nothing else.

A file can be made to crash its parser, to keep it busy for ever, to take all memory, or to hand out memory of what was
read before. Here that hits a process that was made for this file alone:

- :mod:`upmri.core.fork_server` starts a clean interpreter on first need, which forks one child for each file
  (:mod:`~upmri.formats.child.forking`).
- The child sets its limits (:mod:`~upmri.formats.child.sandbox`) and answers requests with the same readers as always
  (:mod:`~upmri.formats.child.tasks`).
- The program talks to it in JSON (:mod:`~upmri.formats.child.session`), copies arrays out of shared memory
  (:mod:`~upmri.formats.child.shared_arrays`), and checks all of it as if the file had sent it
  (:mod:`~upmri.formats.child.remote`). The end of a child is an :class:`InputError` about its file.
"""
