// The functions that mptune calls in C: how many devices there are, and the runtime compilers, which hand a source to
// the command COMPILE with a folder: it reads "source" and "options" there, writes "image", and prints the log. Their
// version is 0.VERSION.

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace {

enum status : int { done = 0, not_compiled = 6 };

struct program {
    std::string source, log, image;
};

std::string content(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}

int compile(program& given, int count, const char* const* options) {
    std::string folder = (std::filesystem::temp_directory_path() / "mptune-simulated-XXXXXX").string();
    if (!mkdtemp(folder.data())) return not_compiled;
    std::ofstream(folder + "/source", std::ios::binary) << given.source;
    {
        std::ofstream lines(folder + "/options");
        for (int i = 0; i < count; ++i) lines << options[i] << '\n';
    }
    const std::string command = COMPILE " '" + folder + "' > '" + folder + "/log' 2>&1";
    const int failed = std::system(command.c_str());
    given.log = content(folder + "/log");
    given.image = content(folder + "/image");
    std::filesystem::remove_all(folder);
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
