"""check_layers must catch what it is for: small trees with one wrong include each."""
import sys

from trees import judge

# name, files of the tree, a piece of the expected message (None: the tree is fine)
CASES = [
    ("arrows down", {"base/a.h": "", "blockmgr/b.c": '#include "base/a.h"\n'}, None),
    ("an arrow up", {"base/a.c": '#include "blockmgr/b.h"\n', "blockmgr/b.h": ""}, "base may not see blockmgr"),
    ("siblings", {"prefix_cache/t.c": '#include "offload/o.h"\n', "offload/o.h": ""}, "prefix_cache may not see offload"),
    ("attention and blocks", {"attention/a.c": '#include "blockmgr/b.h"\n', "blockmgr/b.h": ""}, "attention may not see"),
    ("a skipped room", {"runtime/server/s.c": '#include "runtime/kv/k.h"\n', "runtime/kv/k.h": ""}, "may not see runtime/kv"),
    ("not from the root", {"base/a.c": '#include "b.h"\n', "base/b.h": ""}, "not a path from the root"),
    ("a private header", {"runtime/engine/e.c": '#include "runtime/kv/x_internal.h"\n', "runtime/kv/x_internal.h": ""},
     "private to its folder"),
    ("libuv in the engine", {"runtime/engine/e.c": "#include <uv.h>\n"}, "may not use it"),
    ("jansson in the model", {"runtime/model/m.c": "#  include <jansson.h>\n"}, "may not use it"),
    ("CUDA outside its folder", {"base/d.c": "#include <cuda_runtime_api.h>\n"}, "may not use it"),
    ("CUDA in its folder", {"base/cuda/d.c": "#include <cuda_runtime_api.h>\n"}, None),
    ("CUDA in the engine's folder of that name", {"runtime/model/cuda/m.cu": "#include <cuda_fp16.h>\n"}, "may not use it"),
    ("kernels over the device seam", {"attention/cuda/k.cu": '#include "base/cuda/d.h"\n', "base/cuda/d.h": ""}, None),
    ("the seam over its GPU", {"base/d.c": '#include "base/cuda/d.h"\n', "base/cuda/d.h": ""}, "base may not see base/cuda"),
    ("the emulated device behind its seam",
     {"attention/cuda/gpu_prims.h": '#include "tests/cuda/emulator/emu.h"\n', "tests/cuda/emulator/emu.h": ""}, None),
    ("the emulated device in a kernel",
     {"attention/cuda/k.cu": '#include "tests/cuda/emulator/emu.h"\n', "tests/cuda/emulator/emu.h": ""}, "lies in no room"),
    ("libuv in a CUDA folder", {"base/cuda/d.c": "#include <uv.h>\n"}, "may not use it"),
    ("a test's header", {"base/a.c": '#include "tests/support/t.h"\n', "tests/support/t.h": ""}, "lies in no room"),
    ("a public header with a private one", {"include/quire/q.h": '#include "base/a.h"\n', "base/a.h": ""}, "public header"),
    ("a public header with a system one", {"include/quire/q.h": "#include <pthread.h>\n"}, "public header"),
    ("two files of one name", {"base/a.c": "", "attention/a.c": ""}, "name is taken"),
]

if __name__ == "__main__":
    sys.exit(judge("check_layers", CASES))
