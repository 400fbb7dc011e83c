// Gives NIXL the table of the plug-in, unless NIXL's version is one whose engines look different.

#include "abi.h"
#include "engine.h"
#include "log.h"
#include "settings.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <exception>
#include <link.h>
#include <memory>
#include <string>
#include <string_view>

namespace {

// The versions of NIXL whose engines abi.h declares.
constexpr unsigned major = 1, last_minor = 5;

struct Search {
    // Where the NIXL that calls is installed.
    std::string directory;
    std::string version;
};

// The directory of a file, without links and dots: a loader's names differ for files of one directory.
std::string directory_of(const std::string &path) {
    const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr), std::free);
    const std::string name = real ? real.get() : path;
    return name.substr(0, name.rfind('/') + 1);
}

bool is_digit(char it) { return it >= '0' && it <= '9'; }

// Whether `text` is a version such as 1.5.1.
bool is_version(std::string_view text) {
    size_t dots = 0;
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '.' && i > 0 && is_digit(text[i - 1]))
            ++dots;
        else if (!is_digit(text[i]))
            return false;
    }
    return dots == 2 && is_digit(text.back()) && text.size() < 16;
}

// NIXL has its version as a text among its constants, which its log prints.
int find_version(dl_phdr_info *library, size_t, void *context) {
    auto &search = *static_cast<Search *>(context);
    const std::string path = library->dlpi_name;
    if (path.find("/libnixl") == path.npos || directory_of(path) != search.directory)
        return 0;
    for (int i = 0; i < library->dlpi_phnum; ++i) {
        const auto &part = library->dlpi_phdr[i];
        if (part.p_type != PT_LOAD || (part.p_flags & (PF_R | PF_W)) != PF_R)
            continue;
        const auto *start = reinterpret_cast<const char *>(library->dlpi_addr + part.p_vaddr);
        const auto *const end = start + part.p_filesz;
        while (start < end) {
            const auto *stop = static_cast<const char *>(std::memchr(start, 0, end - start));
            if (!stop)
                break;
            if (stop > start && is_version({start, static_cast<size_t>(stop - start)})) {
                search.version.assign(start, stop);
                return 1;
            }
            start = stop + 1;
        }
    }
    return 0;
}

// The version of the NIXL that has the code at `caller`; empty if it does not say.
std::string version_at(const void *caller) {
    Dl_info info{};
    if (!dladdr(caller, &info) || !info.dli_fname)
        return {};
    Search search{directory_of(info.dli_fname), {}};
    dl_iterate_phdr(find_version, &search);
    return search.version;
}

bool is_supported(const std::string &version) {
    const size_t dot = version.find('.');
    return dot != version.npos && std::stoul(version) == major && std::stoul(version.substr(dot + 1)) <= last_minor;
}

abi::Plugin plugin{
    abi::plugin_version,
    [](const abi::Creation *creation) { return make_engine(*creation); },
    [](abi::Engine *engine) { delete engine; },
    [] { return "ZEROLANE"; },
    [] { return ZEROLANE_VERSION; },
    [] { return default_parameters(); },
    [] { return abi::Segments{abi::Segment::dram}; },
};

} // namespace

#pragma GCC visibility push(default)

extern "C" abi::Plugin *nixl_plugin_init() {
    try {
        const std::string version = version_at(__builtin_return_address(0));
        if (is_supported(version))
            return &plugin;
        logging::error("this plug-in is for NIXL 1.0 to 1.5, and this NIXL is " +
                       (version.empty() ? std::string("of an unknown version") : version) +
                       ": install nixl-cu12 1.5.1, or another zerolane-nixl");
    } catch (const std::exception &) {
        // Out of memory: NIXL says that the plug-in does not load.
    }
    return nullptr;
}

extern "C" void nixl_plugin_fini() {}

#pragma GCC visibility pop
