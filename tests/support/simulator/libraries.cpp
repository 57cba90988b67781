// The functions that mptune calls in C: how many devices there are, and the runtime compilers, which hand a source to
// the command COMPILE with a folder: it reads "source" and "options" there, writes "image", and prints the log. Their
// version is 0.VERSION.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

enum status : int { done = 0, not_compiled = 6 };

struct program {
    std::string source, log, image;
};

std::string content(const std::string& path) {
    std::string text;
    if (FILE* file = std::fopen(path.c_str(), "rb")) {
        char part[1 << 16];
        while (const size_t bytes = std::fread(part, 1, sizeof part, file)) text.append(part, bytes);
        std::fclose(file);
    }
    return text;
}

bool write(const std::string& path, const std::string& text) {
    FILE* file = std::fopen(path.c_str(), "wb");
    if (!file) return false;
    const bool is_whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    return std::fclose(file) == 0 && is_whole;
}

int compile(program& given, int count, const char* const* options) {
    const char* temporary = std::getenv("TMPDIR");
    std::string folder = std::string(temporary ? temporary : "/tmp") + "/mptune-simulated-XXXXXX";
    if (!mkdtemp(folder.data())) return not_compiled;
    std::string lines;
    for (int i = 0; i < count; ++i) lines += std::string(options[i]) + '\n';
    const bool is_written = write(folder + "/source", given.source) && write(folder + "/options", lines);
    const std::string command = COMPILE " '" + folder + "' > '" + folder + "/log' 2>&1";
    const int failed = is_written ? std::system(command.c_str()) : 1;
    given.log = content(folder + "/log");
    given.image = content(folder + "/image");
    std::system(("rm -rf '" + folder + "'").c_str());
    return failed ? not_compiled : done;
}

int devices(const char* visible) {
    const char* all = std::getenv("MPTUNE_SIMULATED_DEVICES");
    const char* some = std::getenv(visible);
    int shown = 1;
    for (const char* c = some ? some : ""; *c; ++c) shown += *c == ',';
    return some ? shown : all ? std::atoi(all) : 1;
}

int size(const std::string& text, size_t* bytes) {
    *bytes = text.size();
    return done;
}

int copy(const std::string& text, char* to) {
    std::memcpy(to, text.data(), text.size());
    return done;
}

}  // namespace

extern "C" {
int cuInit(unsigned) { return done; }
int cuDeviceGetCount(int* count) { return *count = devices("CUDA_VISIBLE_DEVICES"), done; }
int hipGetDeviceCount(int* count) { return *count = devices("HIP_VISIBLE_DEVICES"), done; }
}

#define RUNTIME_COMPILER(prefix, code)                                                                                \
    extern "C" {                                                                                                     \
    int prefix##Version(int* major, int* minor) { return *major = 0, *minor = VERSION, done; }                        \
    int prefix##CreateProgram(program** made, const char* source, const char*, int, const char**, const char**) {    \
        *made = new program{source, "", ""};                                                                         \
        return done;                                                                                                 \
    }                                                                                                                \
    int prefix##CompileProgram(program* given, int count, const char** options) {                                    \
        return compile(*given, count, options);                                                                      \
    }                                                                                                                \
    int prefix##GetProgramLogSize(program* given, size_t* bytes) { return size(given->log, bytes); }                 \
    int prefix##GetProgramLog(program* given, char* to) { return copy(given->log, to); }                             \
    int prefix##Get##code##Size(program* given, size_t* bytes) { return size(given->image, bytes); }                 \
    int prefix##Get##code(program* given, char* to) { return copy(given->image, to); }                               \
    int prefix##DestroyProgram(program** made) { return delete *made, done; }                                        \
    const char* prefix##GetErrorString(int found) { return found ? "it does not compile" : "no error"; }             \
    }
RUNTIME_COMPILER(nvrtc, CUBIN)
RUNTIME_COMPILER(hiprtc, Code)
