"""Compiling in processes of its own, with a library of the test's that does what vendors' compilers must not do."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from mptune.backends.gpu import RuntimeCompiler
from mptune.backends.host_compiler import find_compiler
from mptune.errors import BackendUnavailableError, CompileError

LIBRARY = r"""
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <atomic>
#include <dlfcn.h>
#include <unistd.h>

struct Program { std::string source, code, log; };
static std::atomic<int> users{0};

extern "C" {
int fakeVersion(int* major, int* minor) { *major = 1; *minor = 2; return 0; }
const char* fakeGetErrorString(int) { return "bad source"; }
int fakeCreateProgram(Program** p, const char* source, const char*, int, void*, void*) {
  *p = new Program{source, "", ""};
  return 0;
}
int fakeDestroyProgram(Program** p) { delete *p; return 0; }
int fakeCompileProgram(Program* p, int count, const char** flags) {
  if (users.fetch_add(1) != 0) std::abort();  // as a compiler that two threads must not use
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  users.fetch_sub(1);
  if (p->source == "abort") { std::fprintf(stderr, "LLVM ERROR: out of registers\n"); std::abort(); }
  if (p->source == "hang") for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  if (p->source == "exit") std::exit(3);
  if (p->source == "builtins" && !dlopen("libfake-builtins.so.1.2", RTLD_NOW)) { p->log = dlerror(); return 7; }
  if (p->source == "wrong") { p->log = "line 1: error: wrong"; return 6; }
  p->code = "code of " + p->source + " by " + std::to_string(getpid());
  for (int i = 0; i < count; ++i) p->log += flags[i];
  return 0;
}
int fakeGetCodeSize(Program* p, size_t* size) { *size = p->code.size(); return 0; }
int fakeGetCode(Program* p, char* to) { std::memcpy(to, p->code.data(), p->code.size()); return 0; }
int fakeGetProgramLogSize(Program* p, size_t* size) { *size = p->log.size(); return 0; }
int fakeGetProgramLog(Program* p, char* to) { std::memcpy(to, p->log.data(), p->log.size()); return 0; }
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library")
    (folder / "fake.cpp").write_text(LIBRARY)
    command = [*find_compiler().command, "-shared", "-fPIC", "-O1", "-pthread", "-o", "libfake.so", "fake.cpp"]
    subprocess.run(command, cwd=folder, check=True)
    return str(folder / "libfake.so")


@pytest.fixture
def compiler(library):
    compiler = RuntimeCompiler("Fake", "fake", "Code", ["/nowhere/lib.so", library], "install it")
    yield compiler
    compiler.close()


def process_of(code):
    return int(code.decode().rpartition(" ")[2])


def is_running(pid):
    """Whether a process exists and is more than an entry nobody has asked for."""
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for_end(pid):
    deadline = time.monotonic() + 120
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_running(pid)


def test_code_and_log_come_from_another_process(compiler):
    code, log = compiler.compile("a", "f", ["-x", "-y"], 30)
    assert code.startswith(b"code of a by ")
    assert process_of(code) != os.getpid()
    assert log == "-x-y"
    assert compiler.version == "1.2"
    # One process serves one caller, also after a source that it refused.
    with pytest.raises(CompileError, match=r"Fake rejected f \(bad source\)\nline 1: error: wrong"):
        compiler.compile("wrong", "f", [], 30)
    assert process_of(compiler.compile("b", "f", [], 30)[0]) == process_of(code)


def test_callers_at_the_same_time_never_share_a_library(compiler):
    with ThreadPoolExecutor(4) as pool:
        codes = list(pool.map(lambda i: compiler.compile(str(i), "f", [], 30)[0], range(24)))
    assert [code.split(b" by ")[0] for code in codes] == [b"code of %d" % i for i in range(24)]
    assert 1 < len({process_of(code) for code in codes}) <= 4


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("abort", "Fake crashed in f: it was ended by SIGABRT (aborted)\nLLVM ERROR: out of registers"),
        ("exit", "Fake crashed in f: it exited with code 3"),
        ("hang", "Fake did not finish f within 0.3 s"),
    ],
)
def test_a_compiler_that_fails_is_replaced(compiler, source, message):
    before = process_of(compiler.compile("a", "f", [], 30)[0])
    with pytest.raises(CompileError) as caught:
        compiler.compile(source, "f", [], 30 if source != "hang" else 0.3)
    assert str(caught.value) == message
    assert wait_for_end(before)
    assert process_of(compiler.compile("a", "f", [], 30)[0]) != before


def test_library_that_is_missing_says_what_to_install(library):
    with pytest.raises(BackendUnavailableError, match="Other is not installed: install it"):
        RuntimeCompiler("Other", "other", "Code", ["/nowhere/lib.so", library], "install it")


def test_builtins_beside_the_library_are_found_by_their_name(library, tmp_path):
    """As those in the wheel of NVRTC 13.0, which has no search path."""
    shutil.copy(library, tmp_path / "libfake.so")

    def compile_with_builtins():
        paths = [str(tmp_path / "libfake.so")]
        compiler = RuntimeCompiler("Fake", "fake", "Code", paths, "install it", "libfake-builtins.so.{version}")
        troubles.append(compiler.trouble)
        try:
            return compiler.compile("builtins", "f", [], 30)[0]
        finally:
            compiler.close()

    troubles = []
    with pytest.raises(CompileError, match=r"libfake-builtins\.so\.1\.2: cannot open"):
        compile_with_builtins()
    name = "libfake-builtins.so.1.2"
    command = [*find_compiler().command, "-shared", "-fPIC", f"-Wl,-soname,{name}", "-x", "c++"]
    subprocess.run([*command, "/dev/null", "-o", name], cwd=tmp_path, check=True)
    assert compile_with_builtins().startswith(b"code of builtins")
    assert troubles == ["Fake does not find its libfake-builtins.so.1.2: install it", ""]
