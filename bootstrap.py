"""Roundhouse's front door: prepare the checkout once, then become the command.

Standard library only. Even Python 2.7 parses this file and can say what is missing; what prepares it
lies in router/installation/ and may use the language as it is today.
"""

import os
import sys

__all__ = ["main", "too_old"]

HELP = """usage: python3 bootstrap.py COMMAND [ARGUMENT ...]

The first start makes .venv, installs the packages of requirements.lock and builds the engine (a few minutes);
later starts skip all of it and need no network. Then COMMAND runs, with every further argument passed on.

  serve            start the gateway with its engine (serve --help shows its options)
  check            check providers.yaml
  explain          show how a request would be routed
  engine ...       the engine alone: inspect, plan, generate, serve, bench
  version          say which version this is
  test             run the tests; further arguments go to pytest
  ...              any other command of roundhouse

Environment:
  ROUNDHOUSE_COMPILER=zig|system  only the pinned zig compiler, or only the machine's own (default: either)
  ROUNDHOUSE_SKIP_NATIVE=1        build nothing; the engine then computes with NumPy, many times slower
  CXX, CXXFLAGS                   as everywhere
"""


def too_old(version, path):
    """Return the sentence for a Python that is too old, naming a newer one on ``path``; else nothing."""
    if tuple(version[:2]) >= (3, 11):
        return None
    folders = [folder for folder in path.split(os.pathsep) if folder]
    names = ["python3.%d" % minor for minor in range(14, 10, -1)]
    newer = [name for name in names if any(os.path.exists(os.path.join(folder, name)) for folder in folders)]
    advice = "run this with %s" % newer[0] if newer else "install Python 3.11 or newer and run this with it"
    return "Roundhouse needs Python 3.11 or newer, and this is %d.%d: %s." % (version[0], version[1], advice)


def main(arguments):
    """Prepare, then become the command; return an exit status only where that did not happen."""
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stdout.write(HELP)
        return 0 if arguments else 2
    sentence = too_old(sys.version_info, os.environ.get("PATH", ""))
    if sentence:
        sys.stderr.write("bootstrap: %s\n" % sentence)
        return 1
    from router.installation.start import start

    return start(os.path.dirname(os.path.abspath(__file__)), arguments, dict(os.environ))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
