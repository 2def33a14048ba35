"""The last step of a large scan that several processes reconstructed: its parts become one result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from upmri.cli.recon_work import ReconWork
from upmri.cluster.perform import Done, FileTask


@dataclass(frozen=True)
class JoinWork:
    """A call joins the parts of one scan.

    Parameters
    ----------
    recon
        Work that made the parts.
    """

    recon: ReconWork

    @property
    def stamp(self) -> str:
        """That of the reconstruction."""
        return self.recon.stamp

    def __call__(self, task: FileTask, *, overwrite: bool) -> Done:
        """Read the parts, which are .h5 files, and write the result as one reconstruction would."""
        from upmri.formats import atomic, load_reconstruction
        from upmri.inference.joining import join_reconstructions

        path, destination = Path(task.inputs[0]), Path(task.output)
        work = replace(self.recon, overwrite=overwrite)
        atomic.make_folder(destination.parent)
        work.check_targets(path, destination)
        rec = join_reconstructions([load_reconstruction(part) for part in task.arguments["parts"]])
        replaced = destination.exists()
        rec.save(destination, overwrite=overwrite, complex=work.keep_phase)
        work.write_page(rec, path, destination, replaced=replaced, quiet=True)
        return Done(work.files(destination), work.summary(path, destination, rec))
