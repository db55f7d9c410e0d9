"""The fingerprint of a weights file is remembered in the user's cache folder."""
import stat

from command import MODEL, quire


def run(cache):
    done = quire("run", "--model", MODEL, "--max-tokens", "1", "--raw", "x", env={"XDG_CACHE_HOME": str(cache)})
    assert done.returncode == 0, done.stderr


def test_a_run_leaves_a_private_sidecar_and_later_runs_leave_it_alone(tmp_path):
    folder = tmp_path / "quire" / "fingerprints"
    run(tmp_path)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (sidecar,) = folder.iterdir()
    assert stat.S_IMODE(sidecar.stat().st_mode) == 0o600
    before = (sidecar.stat().st_ino, sidecar.read_bytes())
    run(tmp_path)
    assert (sidecar.stat().st_ino, sidecar.read_bytes()) == before, "it was believed, not made again"
    sidecar.write_bytes(before[1][:-5] + b"0000\n")
    run(tmp_path)
    assert sidecar.read_bytes() == before[1], "a damaged one is made again"


def test_a_cache_folder_that_cannot_be_made_is_no_error(tmp_path):
    (tmp_path / "quire").write_text("a file in the way")
    run(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["quire"]
