// From PTX text, as nvcc writes it, to ptx_kernel. Not a checker of PTX: ptxas is that.
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/cuda/emulator/emu_core.h"
#include "tests/cuda/emulator/ptx_program.h"

using std::string;

const ptx_type_info ptx_types[PTX_NO_TYPE + 1] = {
    {"u8", 1, false},    {"s8", 1, true},      {"b8", 1, false},     {"u16", 2, false}, {"s16", 2, true},  {"b16", 2, false},
    {"f16", 2, false},   {"bf16", 2, false},   {"u32", 4, false},    {"s32", 4, true},  {"b32", 4, false}, {"f32", 4, false},
    {"f16x2", 4, false}, {"bf16x2", 4, false}, {"e4m3x2", 2, false}, {"u64", 8, false}, {"s64", 8, true},  {"b64", 8, false},
    {"f64", 8, false},   {"pred", 1, false},   {"", 0, false}};

ptx_type ptx_type_by_name(const string &name) {
    for (int t = 0; t < PTX_NO_TYPE; t++)
        if (name == ptx_types[t].name) return (ptx_type)t;
    return PTX_NO_TYPE;
}

static const char *const special_names[PTX_SPECIAL_COUNT] = {"%tid.x",    "%tid.y",    "%tid.z",  "%ctaid.x", "%ctaid.y",
                                                             "%ctaid.z",  "%ntid.x",   "%ntid.y", "%ntid.z",  "%nctaid.x",
                                                             "%nctaid.y", "%nctaid.z", "%laneid", "%warpid",  "_"};

// Registers are undefined at the start: a pattern that is neither 0 nor NaN shows in results.
static const uint64_t UNDEFINED = 0xeeeeeeeeeeeeeeeeull;

static string trimmed(const string &s) {
    size_t a = s.find_first_not_of(" \t\n\r"), b = s.find_last_not_of(" \t\n\r");
    return a == string::npos ? "" : s.substr(a, b - a + 1);
}

// At commas outside of brackets, blanks removed.
static std::vector<string> split_operands(const string &s) {
    std::vector<string> parts;
    string part;
    int depth = 0;
    for (char c : s) {
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        if (c == ',' && !depth) {
            parts.push_back(part);
            part.clear();
        } else if (!isspace((unsigned char)c)) {
            part += c;
        }
    }
    if (!part.empty()) parts.push_back(part);
    return parts;
}

static std::vector<string> split(const string &s, char separator) {
    std::vector<string> parts;
    std::stringstream stream(s);
    for (string part; std::getline(stream, part, separator);) parts.push_back(part);
    return parts;
}

struct parser {
    ptx_program &program;
    string text;
    size_t at = 0;
    int line = 1;
    ptx_kernel *kernel = nullptr;
    std::vector<std::map<string, int>> scopes; // register names to slots, innermost last
    std::map<string, uint64_t> parameters, labels;
    std::set<string> shared; // names of dynamic shared memory, all at shared address 0

    parser(ptx_program &p, const char *path);
    void parse_file();

  private:
    [[noreturn]] void fail(const string &what) { emu_fail("ptx", line, "%s", what.c_str()); }
    char take();
    string take_until(const char *ends);

    int add_slot(uint64_t value);
    int find_register(const string &name);
    int constant(const string &s, bool &known);
    ptx_operand address(const string &s, bool &known);
    ptx_operand operand(string s, bool &known);

    void declare_registers(const string &statement);
    void declare_parameter(const string &declaration);
    void read_opcode(const string &opcode, ptx_instruction &i);
    void read_guard(string &statement, ptx_instruction &i);
    void statement(const string &s);
    void body();
    void entry();
    void resolve_labels();
};

// Comments become blanks, so that lines keep their numbers.
parser::parser(ptx_program &p, const char *path) : program(p) {
    std::ifstream file(path);
    if (!file) emu_fail(path, 0, "cannot be read");
    for (string l; std::getline(file, l);) text += l.substr(0, l.find("//")) + "\n";
}

char parser::take() {
    if (at == text.size()) fail("the file ends inside of a kernel");
    char c = text[at++];
    line += c == '\n';
    return c;
}

string parser::take_until(const char *ends) {
    string s;
    while (!strchr(ends, text[at])) s += take();
    return s;
}

// ---- operands ----

int parser::add_slot(uint64_t value) {
    kernel->registers.push_back(value);
    return (int)kernel->registers.size() - 1;
}

int parser::find_register(const string &name) {
    for (size_t i = scopes.size(); i-- > 0;) {
        auto found = scopes[i].find(name);
        if (found != scopes[i].end()) return found->second;
    }
    return -1;
}

// 12, -3, 0x1F, 0f3F800000 (the bits of a float), 0d..., or the address of a parameter or of shared memory.
int parser::constant(const string &s, bool &known) {
    if (parameters.count(s)) return add_slot(PTX_PARAMETER_BASE + parameters[s]);
    if (shared.count(s)) return add_slot(0);
    bool bits = s.size() > 2 && s[0] == '0' && strchr("fFdD", s[1]);
    if (bits) return add_slot(strtoull(s.c_str() + 2, nullptr, 16));
    known = known && (isdigit((unsigned char)s[0]) || s[0] == '-');
    return add_slot(s[0] == '-' ? (uint64_t)strtoll(s.c_str(), nullptr, 0) : strtoull(s.c_str(), nullptr, 0));
}

ptx_operand parser::address(const string &s, bool &known) {
    ptx_operand o;
    size_t plus = s.find('+');
    string base = s.substr(0, plus);
    if (plus != string::npos) o.offset = strtoll(s.c_str() + plus + 1, nullptr, 0);
    o.slot = find_register(base);
    if (o.slot < 0) o.slot = constant(base, known);
    return o;
}

ptx_operand parser::operand(string s, bool &known) {
    if (s[0] == '[') return address(s.substr(1, s.size() - 2), known);
    ptx_operand o;
    if (s[0] == '{') {
        for (const string &element : split_operands(s.substr(1, s.size() - 2)))
            o.elements.push_back(operand(element, known).slot);
        return o;
    }
    if (s[0] == '!') o.negated = true, s = s.substr(1);
    size_t bar = s.find('|');
    if (bar != string::npos) o.predicate = find_register(s.substr(bar + 1)), s = s.substr(0, bar);
    o.slot = find_register(s);
    if (o.slot < 0) o.slot = constant(s, known);
    return o;
}

// ---- statements ----

// .reg .b32 %r<12>; or .reg .pred p, q;
void parser::declare_registers(const string &s) {
    string names = s.substr(s.find_first_of(" \t", s.find('.', 1)));
    for (const string &name : split_operands(names)) {
        size_t open = name.find('<');
        if (open == string::npos) {
            scopes.back()[name] = add_slot(UNDEFINED);
            continue;
        }
        int count = atoi(name.c_str() + open + 1);
        for (int i = 0; i < count; i++) scopes.back()[name.substr(0, open) + std::to_string(i)] = add_slot(UNDEFINED);
    }
}

// .param .align 8 .b8 name[64] or .param .u64 name
void parser::declare_parameter(const string &declaration) {
    std::stringstream words(declaration);
    size_t align = 0, bytes = 0;
    string name;
    for (string word; words >> word;) {
        if (word == ".align") words >> align;
        else if (word[0] == '.' && ptx_type_by_name(word.substr(1)) != PTX_NO_TYPE)
            bytes = ptx_types[ptx_type_by_name(word.substr(1))].bytes;
        else if (word[0] != '.') name = word;
    }
    if (name.empty()) return;
    if (!align) align = bytes;
    size_t open = name.find('[');
    if (open != string::npos) bytes *= (size_t)atoi(name.c_str() + open + 1);
    size_t offset = (kernel->parameter_bytes + align - 1) / align * align;
    parameters[name.substr(0, open)] = offset;
    kernel->parameter_bytes = offset + bytes;
}

void parser::read_opcode(const string &opcode, ptx_instruction &i) {
    std::vector<string> parts = split(opcode, '.');
    i.opcode = parts[0];
    for (size_t p = 1; p < parts.size(); p++) {
        ptx_type type = ptx_type_by_name(parts[p]);
        if (type == PTX_NO_TYPE) i.modifiers.push_back(parts[p]);
        else if (i.type == PTX_NO_TYPE) i.type = type;
        else if (i.type2 == PTX_NO_TYPE) i.type2 = type;
    }
}

// @%p1 and @!%p1
void parser::read_guard(string &s, ptx_instruction &i) {
    if (s[0] != '@') return;
    size_t blank = s.find_first_of(" \t");
    i.guard_negated = s[1] == '!';
    size_t name = i.guard_negated ? 2 : 1;
    i.guard = find_register(s.substr(name, blank - name));
    if (i.guard < 0) fail("no predicate of this name: " + s);
    s = trimmed(s.substr(blank));
}

void parser::statement(const string &whole) {
    string s = trimmed(whole);
    if (s.compare(0, 4, ".reg") == 0) return declare_registers(s);
    if (s.compare(0, 7, ".shared") == 0 || s.compare(0, 6, ".local") == 0) fail("only dynamic shared memory: " + s);
    if (s.empty() || s[0] == '.') return; // .pragma and the like
    ptx_instruction i;
    i.text = s, i.line = line;
    read_guard(s, i);
    size_t blank = s.find_first_of(" \t\n");
    read_opcode(s.substr(0, blank), i);
    string rest = blank == string::npos ? "" : s.substr(blank);
    bool known = true;
    if (i.opcode == "bra") i.label = trimmed(rest);
    else
        for (const string &o : split_operands(rest)) i.operands.push_back(operand(o, known));
    if (!known) i.opcode = "(unknown operand)";
    ptx_select(i);
    kernel->code.push_back(i);
}

// ---- kernels ----

static bool is_label(const string &s) { return !s.empty() && s.find_first_of(". \t") == string::npos; }

// Everything between the braces of a kernel; braces of operands belong to a statement that has begun.
void parser::body() {
    string s;
    size_t outside = scopes.size();
    scopes.emplace_back();
    while (scopes.size() > outside) {
        char c = take();
        bool fresh = trimmed(s).empty();
        if (c == '{' && fresh) scopes.emplace_back();
        else if (c == '}' && fresh) scopes.pop_back();
        else if (c == ';') statement(s), s.clear();
        else if (c == ':' && is_label(trimmed(s))) labels[trimmed(s)] = kernel->code.size(), s.clear();
        else if (!fresh || !isspace((unsigned char)c)) s += c;
    }
}

void parser::resolve_labels() {
    for (ptx_instruction &i : kernel->code) {
        if (i.label.empty()) continue;
        auto found = labels.find(i.label);
        if (found == labels.end()) fail("no label " + i.label);
        i.target = found->second;
    }
}

// After ".entry": name(parameters) directives { body }
void parser::entry() {
    string name = trimmed(take_until("("));
    std::unique_ptr<ptx_kernel> owner(new ptx_kernel());
    kernel = owner.get();
    kernel->name = name;
    kernel->registers.assign(PTX_SPECIAL_COUNT, 0);
    scopes.assign(1, {});
    for (int i = 0; i < PTX_SPECIAL_COUNT; i++) scopes[0][special_names[i]] = i;
    parameters.clear(), labels.clear();
    take();
    for (const string &p : split(take_until(")"), ',')) declare_parameter(p);
    take_until("{");
    take();
    body();
    resolve_labels();
    program[name] = std::move(owner);
}

void parser::parse_file() {
    size_t shared_at = 0;
    while ((shared_at = text.find(".extern .shared", shared_at)) != string::npos) {
        string declaration = text.substr(shared_at, text.find('[', shared_at) - shared_at);
        shared.insert(declaration.substr(declaration.find_last_of(" \t") + 1));
        shared_at++;
    }
    for (size_t next; (next = text.find(".entry", at)) != string::npos;) {
        while (at < next + strlen(".entry")) take();
        entry();
    }
}

void ptx_parse_file(const char *path, ptx_program &program) { parser(program, path).parse_file(); }
