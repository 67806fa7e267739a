"""Loads certificates and keys into an `ssl.SSLContext`; each error is one line that names the file.

Reads PEM files for either end of a connection. The caller's `name` is the option or property that names the file.

OpenSSL names neither the file nor, often, the problem. So each file is checked before OpenSSL loads it, and a pass
phrase is never requested on the terminal.

Certificates are renewed while a process runs. A `FilesContext` knows its files, and reloads them when they have
changed, for connections that are opened from then on. An authority that was removed from its file stays trusted until
the process exits, since a context cannot forget one.
"""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakSet

NamedFile = tuple[str, Path]
"""The name of a setting, and the file that it gives."""


class BadTlsFile(Exception):
    """A file cannot be used; the message names it, and the setting that it came from."""


class _PassPhraseWanted(Exception):
    """The key is encrypted, and no pass phrase was given."""


class FilesContext(ssl.SSLContext):
    """An SSLContext that reloads its certificate files when they change."""

    def __init__(self, *_: Any) -> None:  # noqa: ANN401 -- the protocol is taken when it is made
        self._steps: list[Callable[[ssl.SSLContext], None]] = []
        self._contents: dict[Path, bytes] = {}
        _CONTEXTS.add(self)

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it was made from."""
        return tuple(map(str, self._contents))

    def make(self, step: Callable[[ssl.SSLContext], None], *files: Path) -> None:
        """Add a step that loads these files: now, and when they have changed. Raises BadTlsFile."""
        step(self)
        self._steps.append(step)
        self._contents |= {file: file.read_bytes() for file in files}

    def changed(self) -> dict[Path, bytes] | None:
        """Read the files; return their contents if they have changed. May wait for a disk, but changes nothing.

        Raises BadTlsFile for files that cannot be used, such as one that is being written.
        """
        try:
            contents = {file: file.read_bytes() for file in self._contents}
        except OSError as error:
            raise BadTlsFile(f"{error.filename}: it cannot be read: {error.strerror}") from error
        if contents == self._contents:
            return None
        trial = ssl.SSLContext(self.protocol)
        for step in self._steps:
            step(trial)
        return contents

    def use(self, contents: dict[Path, bytes]) -> None:
        """Load what `changed` returned. Call it on the thread that opens connections, since no other thread may change
        a context.

        OpenSSL reads the files again itself. Raises BadTlsFile.
        """
        for step in self._steps:
            step(self)
        self._contents = contents


_CONTEXTS: WeakSet[FilesContext] = WeakSet()


def contexts_of_files() -> tuple[FilesContext, ...]:
    """Return all contexts of this process that are in use."""
    return tuple(_CONTEXTS)


def trust(context: ssl.SSLContext, name: str, file: Path) -> None:
    """Trust the authorities in the file. Raises BadTlsFile."""

    def step(made: ssl.SSLContext) -> None:
        _trust(made, name, file)

    _make(context, step, file)


def _make(context: ssl.SSLContext, step: Callable[[ssl.SSLContext], None], *files: Path) -> None:
    if isinstance(context, FilesContext):
        context.make(step, *files)
    else:
        step(context)


def _trust(context: ssl.SSLContext, name: str, file: Path) -> None:
    _look_at(name, file, "CERTIFICATE")
    try:
        context.load_verify_locations(cafile=str(file))
    except ssl.SSLError as error:
        raise BadTlsFile(f"{name}={file}: this is not a PEM file of certificates ({error.reason})") from error


def present(
    context: ssl.SSLContext,
    certificate: NamedFile,
    key: NamedFile | None,
    *,
    pass_phrase: tuple[str, str | None],
) -> None:
    """Present the certificate (with its chain), proven by the key.

    Without `key` the key is in the certificate's file. Raises BadTlsFile.
    """

    def step(made: ssl.SSLContext) -> None:
        _present(made, certificate, key or certificate, pass_phrase)

    _make(context, step, certificate[1], (key or certificate)[1])


def _present(
    context: ssl.SSLContext, certificate: NamedFile, key: NamedFile, pass_phrase: tuple[str, str | None]
) -> None:
    _look_at(*certificate, "CERTIFICATE")
    _look_at(*key, "PRIVATE KEY")
    name, phrase = pass_phrase

    def password() -> str:
        if phrase is None:
            raise _PassPhraseWanted
        return phrase

    both = f"{certificate[0]}={certificate[1]} and {key[0]}={key[1]}"
    try:
        context.load_cert_chain(str(certificate[1]), str(key[1]), password)
    except _PassPhraseWanted as error:
        raise BadTlsFile(f"{key[0]}={key[1]}: the key is encrypted: {name}") from error
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise BadTlsFile(f"{both} do not match: the key belongs to another certificate") from error
        if phrase is not None and b"ENCRYPTED" in key[1].read_bytes():
            raise BadTlsFile(f"{key[0]}={key[1]}: it cannot be decrypted with {name}") from error
        raise BadTlsFile(f"{both}: a certificate and its key cannot be read from them ({error.reason})") from error


def is_same_certificate(one: Path, other: Path) -> bool:
    """Return whether two files, which were read before, begin with the same certificate."""
    begins, ends = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    first, second = (
        "".join(file.read_text(encoding="utf-8").partition(begins)[2].partition(ends)[0].split())
        for file in (one, other)
    )
    return first == second


def _look_at(name: str, file: Path, label: str) -> None:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise BadTlsFile(f"{name}={file}: it cannot be read: {error.strerror}") from error
    if b"-----BEGIN" not in content or f"{label}-----".encode() not in content:
        raise BadTlsFile(f"{name}={file}: there is no PEM block '{label}' in it")
