"""Small trees of files, and what a checker of the tree says about each."""
import pathlib
import subprocess
import sys
import tempfile

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts"


def run_checker(script, files):
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            target = pathlib.Path(folder, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        return subprocess.run([sys.executable, SCRIPTS / script, folder], capture_output=True, text=True, check=False)


def judge(script, cases):
    """Of (name, files, a piece of the expected message or None when all is well); returns the exit status."""
    failed = 0
    for name, files, expected in cases:
        done = run_checker(script, files)
        good = done.returncode == (1 if expected else 0) and (expected or "") in done.stdout
        if not good:
            print(f"{name}: exit {done.returncode}, said {done.stdout!r} {done.stderr!r}")
        failed += not good
    print(f"{len(cases) - failed} of {len(cases)} trees judged as expected")
    return 1 if failed else 0
