// Runs nvcc's PTX in place of the C++ functions: with EMU_PTX=file[:file...] in the environment, a launch of a kernel whose
// symbol is an entry of one of the files interprets it. So inline assembly and nvcc's own code generation are tested; ptxas
// and the hardware are not. Programs that link this export their symbols (-rdynamic).
#include <dlfcn.h>

#include <cstdlib>
#include <sstream>

#include "tests/cuda/emulator/emu_core.h"
#include "tests/cuda/emulator/emu_runtime.h"
#include "tests/cuda/emulator/ptx_program.h"

emu_ptx_loader emu_ptx_body;

static ptx_program &program() {
    static ptx_program kernels;
    return kernels;
}

// ---- choosing operations ----

static void unsupported(ptx_exec &e, const ptx_instruction &i) {
    emu_fail(e.site(), i.line, "not supported: %s", i.text.c_str());
}

static bool listed(const char *list, const std::string &word) {
    std::stringstream words(list);
    for (std::string w; words >> w;)
        if (w == word) return true;
    return false;
}

static bool modifiers_known(const ptx_opcode &opcode, const ptx_instruction &i) {
    for (const std::string &m : i.modifiers)
        if (!listed(opcode.modifiers, m)) return false;
    return true;
}

static const ptx_opcode *find_opcode(const std::string &name) {
    static const ptx_opcode_table tables[] = {ptx_arithmetic_opcodes(), ptx_bit_opcodes(), ptx_convert_opcodes(),
                                              ptx_memory_opcodes(), ptx_warp_opcodes()};
    for (const ptx_opcode_table &table : tables)
        for (size_t i = 0; i < table.count; i++)
            if (name == table.rows[i].name) return &table.rows[i];
    return nullptr;
}

void ptx_select(ptx_instruction &i) {
    const ptx_opcode *opcode = find_opcode(i.opcode);
    ptx_operation run = opcode && modifiers_known(*opcode, i) ? opcode->select(i) : nullptr;
    i.run = run ? run : unsupported;
}

// ---- running ----

static void set_specials(uint64_t *r) {
    const uint3 &thread = emu_current->index, &cta = emu_block_index;
    r[PTX_TID_X] = thread.x, r[PTX_TID_Y] = thread.y, r[PTX_TID_Z] = thread.z;
    r[PTX_CTAID_X] = cta.x, r[PTX_CTAID_Y] = cta.y, r[PTX_CTAID_Z] = cta.z;
    r[PTX_NTID_X] = emu_block_dim.x, r[PTX_NTID_Y] = emu_block_dim.y, r[PTX_NTID_Z] = emu_block_dim.z;
    r[PTX_NCTAID_X] = emu_grid_dim.x, r[PTX_NCTAID_Y] = emu_grid_dim.y, r[PTX_NCTAID_Z] = emu_grid_dim.z;
    r[PTX_LANEID] = emu_current->lane, r[PTX_WARPID] = emu_current->warp;
}

void ptx_run_thread(const ptx_kernel &kernel, const unsigned char *parameters) {
    std::vector<uint64_t> registers = kernel.registers;
    set_specials(registers.data());
    ptx_exec e = {kernel, registers.data(), parameters, 0, false};
    while (!e.done) {
        const ptx_instruction &i = kernel.code[e.next++];
        if (i.guard >= 0 && (registers[(size_t)i.guard] & 1) == (uint64_t)i.guard_negated) continue;
        i.run(e, i);
    }
}

static std::function<void()> body_of(const void *function, const emu_parameters &parameters) {
    Dl_info symbol;
    if (!dladdr(function, &symbol) || !symbol.dli_sname) emu_fail("ptx", 0, "a kernel has no exported symbol");
    auto found = program().find(symbol.dli_sname);
    if (found == program().end()) emu_fail("ptx", 0, "no entry %s", symbol.dli_sname);
    const ptx_kernel &kernel = *found->second;
    if (parameters.size() < kernel.parameter_bytes)
        emu_fail(symbol.dli_sname, 0, "%zu bytes of parameters, the PTX has %zu", parameters.size(), kernel.parameter_bytes);
    return [&kernel, parameters] { ptx_run_thread(kernel, parameters.data()); };
}

// Before main, like the options: a test program does not know that it runs PTX.
static bool load_from_environment() {
    const char *paths = getenv("EMU_PTX");
    if (!paths) return false;
    std::stringstream list(paths);
    for (std::string path; std::getline(list, path, ':');) ptx_parse_file(path.c_str(), program());
    emu_ptx_body = body_of;
    return true;
}

static const bool loaded = load_from_environment();
