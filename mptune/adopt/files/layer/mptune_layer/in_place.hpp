// A program in place: its kernels are libraries of other types, and so is the device's memory. $MPTUNE_IN_PLACE names a table:
//   allocation NUMBER OWN NOW       the type of its elements, and that which they have in its place
//   kernel LABEL LIBRARY TYPES      the library that has the kernel, and the types of its scalars ('=' for the program's)
//   results FOLDER                  what the host takes back last from each place, and the time of each kernel
struct kernel_in_place {
    std::string library, types;
    long long (*launch)(void** arguments, const unsigned* grid, const unsigned* block, unsigned shared, unsigned workers);
    u64 launches = 0, nanoseconds = 0;
};
struct table {
    std::map<unsigned, retyped> allocations;
    std::map<std::string, kernel_in_place> kernels;
    std::map<std::pair<unsigned, size_t>, std::vector<char>> answers;
    std::string folder;
};
table& in_place();
unsigned allocations_so_far = 0;

void write_results() {
    table& t = in_place();
    FILE* const data = fopen((t.folder + "/answers.bin").c_str(), "wb");
    FILE* const index = fopen((t.folder + "/answers.txt").c_str(), "w");
    FILE* const times = fopen((t.folder + "/times.txt").c_str(), "w");
    if (data == nullptr || index == nullptr || times == nullptr) return;
    for (const auto& [place, content] : t.answers) {
        fprintf(index, "%u %zu %zu\n", place.first, place.second, content.size());
        fwrite(content.data(), 1, content.size(), data);
    }
    for (const auto& [name, k] : t.kernels) fprintf(times, "%s\t%llu\t%llu\n", name.c_str(), k.launches, k.nanoseconds);
    fclose(data), fclose(index), fclose(times);
}

table& in_place() {
    static table* const one = [] {
        auto* const made = new table;
        const char* const path = getenv("MPTUNE_IN_PLACE");
        FILE* const file = path != nullptr && *path != 0 ? fopen(path, "r") : nullptr;
        if (file == nullptr) return made;
        static char line[1 << 14], a[1 << 12], b[1 << 12], c[1 << 10];
        unsigned number;
        char own, now;
        while (fgets(line, sizeof line, file) != nullptr) {
            if (sscanf(line, "allocation %u %c %c", &number, &own, &now) == 3) made->allocations[number] = {own, now};
            else if (sscanf(line, "kernel %4095[^\t]\t%4095[^\t]\t%1023s", a, b, c) == 3) made->kernels[a] = {b, c, nullptr};
            else if (sscanf(line, "results %4095[^\n]", a) == 1) made->folder = a;
        }
        fclose(file);
        atexit(write_results);
        return made;
    }();
    return *one;
}

template <class To, class From>
void convert_elements(void* to, const void* from, size_t count) {
    To* const t = static_cast<To*>(to);
    const From* const f = static_cast<const From*>(from);
    for (size_t i = 0; i < count; ++i) t[i] = static_cast<To>(f[i]);
}
// Rounded once: what fp32 keeps of a double is odd where it is not exact, so that the second rounding is right.
struct bfloat {
    unsigned short bits;
    bfloat() = default;
    explicit bfloat(double value) {
        float odd = static_cast<float>(value);
        unsigned u;
        memcpy(&u, &odd, 4);
        const double size = __builtin_fabs(value), back = __builtin_fabs(static_cast<double>(odd));
        if (back != size && size == size) u = (u - (back > size)) | 1;
        if (value != value) bits = static_cast<unsigned short>(u >> 16 | 0x40);
        else bits = static_cast<unsigned short>((u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
    explicit operator double() const {
        const unsigned u = static_cast<unsigned>(bits) << 16;
        float value;
        memcpy(&value, &u, 4);
        return value;
    }
    explicit operator float() const { return static_cast<float>(static_cast<double>(*this)); }
    explicit operator _Float16() const { return static_cast<_Float16>(static_cast<double>(*this)); }
};
template <class From>
void converted_from(void* to, char type, const void* from, size_t count) {
    if (type == 'd') convert_elements<double, From>(to, from, count);
    else if (type == 'f') convert_elements<float, From>(to, from, count);
    else if (type == 'h') convert_elements<_Float16, From>(to, from, count);
    else for (size_t i = 0; i < count; ++i) static_cast<bfloat*>(to)[i] = bfloat(static_cast<double>(static_cast<const From*>(from)[i]));
}
void converted(void* to, char type, const void* from, char other, size_t count) {
    if (type == other) memmove(to, from, count * bytes_of(type));
    else if (other == 'd') converted_from<double>(to, type, from, count);
    else if (other == 'f') converted_from<float>(to, type, from, count);
    else if (other == 'h') converted_from<_Float16>(to, type, from, count);
    else converted_from<bfloat>(to, type, from, count);
}

void retype(block_of_memory& made) {
    const auto found = in_place().allocations.find(made.number);
    if (found == in_place().allocations.end()) return;
    made.types = found->second;
    made.real_bytes = made.bytes / bytes_of(made.types.own) * bytes_of(made.types.now);
    void* const room = mmap(nullptr, made.real_bytes + 2 * margin, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) abort();
    if (made.real_bytes >= 1 << 22) madvise(room, made.real_bytes + 2 * margin, MADV_HUGEPAGE);
    made.real = static_cast<char*>(room) + margin;
    // The address that the program knows is no memory: what reads it without the layer crashes.
    mprotect(made.start - margin, made.bytes + 2 * margin, PROT_NONE);
}

void copy_in_place(void* to, const void* from, size_t bytes) {
    const block_of_memory *const target = find(to), *const source = find(from);
    const bool in = target != nullptr && target->real != nullptr, out = source != nullptr && source->real != nullptr;
    if (in && out) {
        converted(target->at(to), target->types.now, source->at(from), source->types.now, bytes / bytes_of(source->types.own));
    } else if (in) {
        converted(target->at(to), target->types.now, from, target->types.own, bytes / bytes_of(target->types.own));
    } else if (out) {
        converted(to, source->types.own, source->at(from), source->types.now, bytes / bytes_of(source->types.own));
    } else {
        memmove(to, from, bytes);
    }
    if (source != nullptr && target == nullptr && !in_place().folder.empty()) {
        const char* const content = static_cast<const char*>(to);
        const size_t offset = static_cast<const char*>(from) - source->start;
        in_place().answers[{source->number, offset}].assign(content, content + bytes);
    }
}

void fill_in_place(void* pointer, int value, size_t bytes) {
    const block_of_memory* const target = find(pointer);
    if (target == nullptr || target->real == nullptr) {
        memset(pointer, value, bytes);
        return;
    }
    char element[8];
    memset(element, value, sizeof element);
    const size_t size = bytes_of(target->types.now), count = bytes / bytes_of(target->types.own);
    char* const start = target->at(pointer);
    if (value == 0) memset(start, 0, size * count);
    else for (size_t i = 0; i < count; ++i) converted(start + i * size, target->types.now, element, target->types.own, 1);
}
