"""Many scans by many processes: claims and records in the output folder, shards, devices, and Dask as an engine.

Nothing here knows what is done with a scan. A :class:`~upmri.cluster.perform.Work` does it, and
:func:`~upmri.cluster.perform.perform` calls it once for each :class:`~upmri.cluster.perform.FileTask`.
"""
