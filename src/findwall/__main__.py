"""`python -m findwall`: the same as the `findwall` command."""

import os
import sys

if __name__ == "__main__":
    # `-m` puts the current folder first, where a person's click.py would be taken for ours. The installed
    # command has the interpreter's folder there; a job gets its own instead.
    if not getattr(sys.flags, "safe_path", False) and sys.path and sys.path[0] in ("", os.getcwd()):  # noqa: PTH109
        sys.path[0] = os.path.dirname(sys.executable)  # noqa: PTH120

    try:
        from findwall.cli import main
    except KeyboardInterrupt:  # before there is anything to say: no traceback of ours
        import signal

        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        raise
    main()
