"""Structured logs on standard error: human-readable on a terminal, otherwise JSON lines."""

import logging
import sys
import threading
import time
from collections.abc import Callable, Collection
from types import TracebackType

import msgspec
import structlog

from muster.coordinator.log_throttle import LogThrottle

OF_CLIENTS = frozenset(
    {
        "a connection failed",
        "a request failed",
        "broker closed the connection",
        "client refused by the broker",
        "connection closed",
        "connection closed: the client does not read its responses",
        "connection closed: unusable response from the broker",
        "connection lost",
        "records refused: declared topics hold no data",
        "connections closed: they hold more than three quarters of --queued-max-request-bytes",
        "TLS with a client failed",
    }
)
"""Log lines that a client can cause as often as it likes."""

MISTAKES = frozenset({"connection closed", "TLS with a client failed", "records refused: declared topics hold no data"})
"""Lines that a misconfigured client causes on every attempt: one a minute for each address and kind."""

LINES_EACH_SECOND = 10
"""Limit of these lines per second and kind; the next line has the number of suppressed ones (`others_since`)."""


class _KindWindow(msgspec.Struct):
    """Lines of one kind in the second that began at `began_s`, and those suppressed since the last line."""

    began_s: float
    lines: int = 0
    left_out: int = 0


class Few:
    """A structlog processor that limits the lines of each kind, and of each library, to `each_second`.

    For `MISTAKES` the limit is lower: one a minute.
    """

    def __init__(
        self,
        events: Collection[str] = OF_CLIENTS,
        *,
        each_second: int = LINES_EACH_SECOND,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._events = events
        self._each_second = each_second
        self._now_s = now_s
        self._windows: dict[tuple[str, object], _KindWindow] = {}
        self._mistakes = LogThrottle(lambda: int(now_s() * 1000))

    def __call__(self, _: object, __: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
        """Return the line, or raise DropEvent."""
        event, library = line["event"], line.get("library")
        if library is None and event not in self._events:
            return line
        suppressed = 0
        if library is None and event in MISTAKES:
            due = self._mistakes.due((event, line.get("fault") or line.get("reason"), line.get("peer")))
            if due is None:
                raise structlog.DropEvent
            suppressed = due
        now_s = self._now_s()
        # A library's messages can contain anything, so all its lines are of one kind; otherwise kinds could be many.
        window = self._windows.setdefault((library or event, line.get("fault")), _KindWindow(now_s))
        if now_s - window.began_s >= 1:
            window.began_s, window.lines = now_s, 0
        if window.lines >= self._each_second:
            window.left_out += 1 + suppressed
            raise structlog.DropEvent
        window.lines += 1
        if window.left_out or suppressed:
            line["others_since"], window.left_out = window.left_out + suppressed, 0
        return line


class OfLibraries(logging.Handler):
    """Passes the records of libraries that use `logging` on to structlog, with the logger's name as `library`."""

    def emit(self, record: logging.LogRecord) -> None:
        level = min(max(record.levelno // 10 * 10, logging.DEBUG), logging.CRITICAL)  # structlog knows no other levels
        try:
            structlog.get_logger().log(level, record.getMessage(), library=record.name, exc_info=record.exc_info)
        except Exception:  # noqa: BLE001 -- as in any `logging` handler: the code that logs must not fail
            self.handleError(record)


def are_json() -> bool:
    """Return whether logging is configured, and writes JSON."""
    return isinstance(structlog.get_config()["processors"][-1], structlog.processors.JSONRenderer)


def log_exit(reason: str, exit_code: int) -> None:
    """Log why the process exits, as its last line."""
    structlog.get_logger(__name__).error("muster ends", reason=reason, exit_code=exit_code)


def _log_uncaught() -> None:
    """Also log what Python itself would print: uncaught exceptions and warnings."""
    log = structlog.get_logger(__name__)

    def uncaught(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        log.critical("an error that nobody caught", exc_info=(kind, error, traceback))

    def of_thread(args: threading.ExceptHookArgs) -> None:
        where = "?" if args.thread is None else args.thread.name
        error = args.exc_value or args.exc_type()
        log.critical("an error that nobody caught", thread=where, exc_info=(args.exc_type, error, args.exc_traceback))

    def unraisable(args: "sys.UnraisableHookArgs") -> None:
        error = args.exc_value or args.exc_type()
        said = args.err_msg or "an error that nobody could catch"
        log.error(said, at=repr(args.object), exc_info=(args.exc_type, error, args.exc_traceback))

    sys.excepthook, threading.excepthook, sys.unraisablehook = uncaught, of_thread, unraisable
    logging.captureWarnings(capture=True)


def configure_logs(level: str, form: str) -> None:
    """Set up logging. `form` is auto, console or json; auto means console on a terminal."""
    console = form == "console" or (form == "auto" and sys.stderr.isatty())
    renderer = (
        # Rich's tracebacks would show the values of variables, which may include clients' credentials.
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)
        if console
        else structlog.processors.JSONRenderer()
    )
    number = logging.getLevelNamesMapping()[level.upper()]
    processors: list[structlog.typing.Processor] = [
        Few(),
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    if not console:
        processors.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),  # one write per line, so that none is torn
        cache_logger_on_first_use=True,
    )
    if not console:
        _log_uncaught()
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[OfLibraries()])
