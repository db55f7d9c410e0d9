"""A shared library exports quire_* and nothing else, and exports at least what its headers declare.

    exports.py LIBRARY HEADER...
"""
import re
import subprocess
import sys

DECLARATION = re.compile(r"QUIRE_API[^;]*?\b(quire_\w+)\s*\(", re.DOTALL)
# Symbols that the linker itself adds.
LINKER = {"_init", "_fini", "_edata", "_end", "__bss_start"}


def exported(library):
    lines = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in lines.splitlines() if line.strip()} - LINKER


def declared(headers):
    names = set()
    for header in headers:
        with open(header, encoding="utf-8") as file:
            names |= set(DECLARATION.findall(file.read()))
    return names


def main():
    library, headers = sys.argv[1], sys.argv[2:]
    has, wants = exported(library), declared(headers)
    surplus = sorted(name for name in has if not name.startswith("quire_"))
    missing = sorted(wants - has)
    for name in surplus:
        print(f"{library}: {name} is exported and is not quire_*")
    for name in missing:
        print(f"{library}: {name} is declared in a header and is not exported")
    print(f"{len(has)} symbols")
    return 1 if surplus or missing or not wants else 0


if __name__ == "__main__":
    sys.exit(main())
