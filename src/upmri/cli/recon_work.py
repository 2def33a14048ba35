"""The reconstruction of one file: the loop of `upmri recon` calls it, and so do the processes of a cluster."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from upmri.cli import console
from upmri.cli.earlier_page import remove_page
from upmri.cli.given_files import read_maps, read_scan
from upmri.cluster import content
from upmri.cluster.perform import Done, FileTask, Split
from upmri.cluster.place import device_here
from upmri.core.errors import InputError
from upmri.core.version import __version__

if TYPE_CHECKING:
    from upmri.core.scan import Reconstruction
    from upmri.formats import Source
    from upmri.inference.mapped import MappedSlices

# Options that do not change a result.
_NOT_CONTENT = ("device", "inputs", "limit", "overwrite", "split_above")
_FILES = ("maps", "reference", "navigators")  # files beside the scan
_OPTIONS = {"damping": "--lambda"}  # options that have another name than their setting
_RANGE = 32  # slices of a part of a large scan: the most that an accelerator reconstructs at once


@dataclass(frozen=True, kw_only=True)
class ReconWork:
    """Options of `upmri recon` for any number of files; a call reconstructs one.

    Parameters
    ----------
    method, settings
        Name of the method, and its settings that were given.
    maps, reference, navigators
        Files that give coil maps, and one that corrects the ghosts of echo-planar readouts.
    axes, slices
        Names of the axes of an array, also of the reference and the navigators, and the slices to reconstruct.
    check, seed, device
        As for :func:`upmri.reconstruct`; the device may be a list with commas, of which each process takes one.
    keep_phase, with_report, overwrite
        Whether NIfTI keeps the phase, whether a report page is written, whether files are replaced.
    limit
        Most bytes to read at once.
    inputs
        Files that must not be written: those of the options.
    split_above
        Bytes of k-space from which the slices of a scan are tasks of their own; None for never.
    """

    method: str
    settings: dict[str, Any]
    maps: Path | None = None
    reference: Path | None = None
    navigators: Path | None = None
    axes: str | None = None
    slices: str | None = None
    check: bool = False
    keep_phase: bool = False
    with_report: bool = False
    overwrite: bool = False
    seed: int = 0
    device: str = "auto"
    limit: int
    inputs: tuple[Path, ...] = ()
    split_above: int | None = None

    @property
    def stamp(self) -> str:
        """Hash of the version, the settings, the content of the weights and that of the files of maps."""
        from upmri.weights.catalogue import available
        from upmri.weights.files import load_prior

        facts = {key: value for key, value in asdict(self).items() if key not in _NOT_CONTENT}
        model = self.settings.get("model")
        names = available(self.method) if model is None else (model,)
        facts["weights"] = sorted(load_prior(name, shared=True).digest for name in names)
        facts["files"] = [None if name is None else content.digest(name) for name in self._files]
        facts["version"] = __version__
        for name in _FILES:
            del facts[name]
        return content.stamp({**facts, "settings": {**self.settings, "model": None}})

    @property
    def _files(self) -> tuple[Path | None, Path | None, Path | None]:
        return self.maps, self.reference, self.navigators

    def __call__(self, task: FileTask, *, overwrite: bool) -> Done:
        """Reconstruct the scan of a task, without a bar or warnings."""
        from upmri.formats import atomic

        destination = Path(task.output)
        atomic.make_folder(destination.parent)
        work = replace(self, overwrite=overwrite or self.overwrite, device=device_here(self.device))
        if task.arguments.get("whole"):
            work = replace(work, split_above=None)
        if task.slices is not None:
            model = {"model": task.arguments["model"]} if "model" in task.arguments else {}
            work = replace(work, slices=task.slices, settings=self.settings | model, split_above=None)
            work = replace(work, with_report=False, check=self.check and not model, inputs=())
        rec = work.reconstruct(Path(task.inputs[0]), destination)
        return Done(work.files(destination), work.summary(Path(task.inputs[0]), destination, rec))

    def files(self, destination: Path) -> list[Path]:
        """Return the files that may be written for a result."""
        from upmri.formats import registry

        deviations = registry.beside(destination) if self.settings.get("samples") else None
        page = self.page(destination) if self.with_report else None
        return [destination, *(path for path in (deviations, page) if path is not None)]

    @staticmethod
    def page(destination: Path) -> Path:
        """Return the report page of a result."""
        from upmri.formats.file_names import base_name

        return destination.with_name(f"{base_name(destination)}.html")

    def summary(self, path: Path, destination: Path, rec: Reconstruction) -> dict[str, Any]:
        """Return the row of the table, or the entry of the JSON, of a result and its page."""
        pages = {"page": str(self.page(destination))} if self.with_report else {}
        return summary(path, destination, rec) | pages

    def absolute(self) -> ReconWork:
        """Return the same with absolute names of files, for processes that work in other folders."""
        model = self.settings.get("model")
        if model is not None and Path(model).is_file():
            model = str(Path(model).absolute())
        maps, reference, navigators = (None if path is None else path.absolute() for path in self._files)
        inputs = tuple(path.absolute() for path in self.inputs)
        settings = self.settings | {"model": model}
        files = {"maps": maps, "reference": reference, "navigators": navigators}
        return replace(self, settings=settings, inputs=inputs, **files)  # type: ignore[arg-type]

    def check_settings(self) -> None:
        """Refuse wrong settings of the method."""
        from upmri.inference.choice import build_method

        try:
            build_method(self.method, **self.settings)
        except InputError as error:
            if error.field not in _OPTIONS:
                raise
            raise InputError(error.message, field=_OPTIONS[error.field]) from error

    def check_here(self) -> None:
        """Refuse a device and files beside the scans that are not there: once, instead of for each scan."""
        from upmri.core.device import pick_device
        from upmri.formats import guard
        from upmri.formats.file_names import find_pair

        pick_device(self.device)
        for path in (file for file in self._files if file is not None):
            with guard.naming(path):
                guard.head(find_pair(path))

    def check_targets(self, path: Path, destination: Path) -> None:
        """Refuse files that could not be written, or that are inputs."""
        from upmri import formats
        from upmri.evaluation import report
        from upmri.formats import atomic

        inputs, samples = [path, *self.inputs], bool(self.settings.get("samples"))
        formats.check_target(destination, overwrite=self.overwrite, complex=self.keep_phase, deviations=samples)
        for file in self.files(destination):
            atomic.check_not_input(file, inputs)
        if self.with_report:
            report.check_report(self.page(destination), overwrite=self.overwrite)

    def reconstruct(
        self,
        path: Path,
        destination: Path,
        *,
        progress: bool = False,
        quiet: bool = True,
        seconds: dict[str, float] | None = None,
    ) -> Reconstruction:
        """Reconstruct a scan and write the image, and its page.

        Parameters
        ----------
        path, destination
            The scan, and the file to write.
        progress
            Whether to show a bar.
        quiet
            Whether warnings are hidden.
        seconds
            Filled with the seconds of each stage, if given.
        """
        from upmri import formats
        from upmri.core.stages import measured, stage
        from upmri.inference.reconstruct import reconstruct_slices

        self.check_targets(path, destination)
        replaced = destination.exists()
        with measured(seconds) if seconds is not None else nullcontext():
            with stage("opening"):
                source = formats.open_source(path, axes=self.axes, max_bytes=self.limit)
            with source, console.warnings_shown(quiet=quiet):
                self._split(source)
                self._warn_of_deviations(destination)
                with self.naming_files():
                    each = self.mapped(source)
                    rec = reconstruct_slices(
                        each, len(each), self.method, read=each.read,
                        check=self.check, seed=self.seed, device=self.device, progress=progress, **self.settings
                    )  # fmt: skip
            with stage("writing"):
                rec.save(destination, overwrite=self.overwrite, complex=self.keep_phase)
        self.write_page(rec, path, destination, replaced=replaced, quiet=quiet)
        return rec

    def write_page(self, rec: Reconstruction, path: Path, destination: Path, *, replaced: bool, quiet: bool) -> None:
        """Write the page of a result; if none was asked for, remove that of the image that was ``replaced``, if any."""
        from upmri.evaluation import report

        page = self.page(destination)
        if self.with_report:
            with console.warnings_shown(quiet=quiet):
                report.write_report(rec, page, scan=path, slices=self.slices, axes=self.axes, overwrite=self.overwrite)
        elif replaced:  # otherwise the page is that of an image with another suffix
            remove_page(page)

    def mapped(self, source: Source, *, averages: bool = True) -> MappedSlices:
        """Return the slices of a scan with what the files beside it give them; ``averages`` as of the class."""
        from upmri.inference.mapped import MappedSlices

        maps = read_maps(self.maps, self.limit)
        other, echoes = (read_scan(file, self.limit, self.axes) for file in (self.reference, self.navigators))
        return MappedSlices(source, self.slices, maps=maps, reference=other, navigators=echoes, averages=averages)

    @contextmanager
    def naming_files(self) -> Iterator[None]:
        """Name the file of maps, the reference or the navigators in what is wrong with it, not the scan."""
        try:
            yield
        except InputError as error:
            raise error.within(path=dict(zip(_FILES, self._files, strict=True)).get(error.field or "")) from error

    def _warn_of_deviations(self, destination: Path) -> None:
        """Warn where standard deviations are asked for, and neither the file nor a page will have them."""
        from upmri.formats import registry

        suffix, kind = registry.written_format(destination)
        if self.settings.get("samples") and not (kind.deviations or self.with_report):
            warnings.warn(
                f"{suffix} has no place for standard deviations; .h5, .nii.gz, .dcm and --report have", stacklevel=2
            )

    def _split(self, source: Source) -> None:
        """Raise :class:`Split` for a large scan whose slices do not depend on each other."""
        from upmri.methods.registry import find_method

        alone = self.slices is None and not self.settings.get("adapt")
        if self.split_above is None or not alone or find_method(self.method).dynamic:
            return
        if source.slices > _RANGE and source.slices * source.slice_bytes > self.split_above:
            starts = range(0, source.slices, _RANGE)
            raise Split([f"{start}:{min(start + _RANGE, source.slices)}" for start in starts])


def summary(path: Path, destination: Path, rec: Reconstruction) -> dict[str, Any]:
    """Return the row of the table, or the entry of the JSON, of a result."""
    from upmri.evaluation import evaluate

    found = {
        "scan": str(path),
        "out": str(destination),
        "method": rec.method,
        "settings": rec.settings,
        "versions": rec.versions,
        "slices": len(rec),
        "seconds": round(rec.seconds, 3),
    }
    found |= {} if rec.bounds is None else {"bounds": rec.bounds.summary}
    return found if rec.reference is None else found | evaluate(rec)
