// Declares what NIXL 1.0 to 1.5 expects of a back end: values, layouts, and the order of virtual functions.
//
// Written from NIXL's guide for back ends. The tests compare sizes and order with the installed wheel.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace abi {

enum class Status : int32_t {
    in_progress = 1,
    success = 0,
    not_posted = -1,
    invalid_param = -2,
    backend = -3,
    not_found = -4,
    mismatch = -5,
    not_allowed = -6,
    repost_active = -7,
    unknown = -8,
    not_supported = -9,
    remote_disconnect = -10,
    canceled = -11,
};

enum class Segment : int32_t { dram = 0, vram = 1, block = 2, object = 3, file = 4 };

enum class Operation : int32_t { read = 0, write = 1 };

using Parameters = std::unordered_map<std::string, std::string>;
using Segments = std::vector<Segment>;
// Pairs of the sender's name and the text.
using Notifications = std::vector<std::pair<std::string, std::string>>;

// Local or remote memory, as the engine knows it.
class Metadata {
  public:
    explicit Metadata(bool is_private) : is_private_(is_private) {}
    virtual ~Metadata() = default;
    Metadata(const Metadata &) = delete;
    Metadata &operator=(const Metadata &) = delete;

  protected:
    bool is_private_;
};

// A transfer of the engine's.
class Request {
  public:
    Request() = default;
    virtual ~Request() = default;
    Request(const Request &) = delete;
    Request &operator=(const Request &) = delete;
};

struct Extent {
    uintptr_t address;
    size_t length;
    uint64_t device;
};

struct Registration : Extent {
    std::string blob;
};

struct Descriptor : Extent {
    Metadata *metadata;
};

// A class of NIXL's with virtual functions, of which the engine only reads the data.
template <class T> struct List {
    const void *table;
    Segment segment;
    std::vector<T> items;

    List(const List &) = delete;
    List &operator=(const List &) = delete;
};

using Descriptors = List<Descriptor>;
using Registrations = List<Registration>;
struct RemoteDescriptors;
struct AgentArguments;

struct Arguments {
    std::string notification;
    bool notifies;
    std::string custom;
};

struct Creation {
    std::string agent;
    std::string type;
    Parameters *parameters;
    bool has_progress_thread;
    uint64_t progress_delay_us;
    int32_t sync_mode;
    bool has_telemetry;
};

// The base of engines. NIXL reads its members by functions that are compiled into NIXL.
class Engine {
  private:
    std::string type_;
    Parameters parameters_;
    // Events in which NIXL's versions differ: always empty. NIXL itself counts bytes, requests and errors.
    std::vector<char> telemetry_;
    std::mutex telemetry_lock_;

  protected:
    bool failed_ = false;
    const std::string agent_;
    const bool has_telemetry_;

  public:
    explicit Engine(const Creation &creation)
        : type_(creation.type), parameters_(*creation.parameters), agent_(creation.agent),
          has_telemetry_(creation.has_telemetry) {}
    Engine(const Engine &) = delete;
    Engine &operator=(const Engine &) = delete;

    virtual ~Engine() = default;
    virtual bool supportsRemote() const = 0;
    virtual bool supportsLocal() const = 0;
    virtual bool supportsNotif() const = 0;
    virtual Segments getSupportedMems() const = 0;
    virtual Status registerMem(const Registration &memory, const Segment &segment, Metadata *&out) = 0;
    virtual Status deregisterMem(Metadata *memory) = 0;
    virtual Status connect(const std::string &agent) = 0;
    virtual Status disconnect(const std::string &agent) = 0;
    virtual Status unloadMD(Metadata *memory) = 0;
    virtual Status prepXfer(const Operation &operation, const Descriptors &local, const Descriptors &remote,
                            const std::string &agent, Request *&request, const Arguments *arguments) const = 0;
    virtual Status postXfer(const Operation &operation, const Descriptors &local, const Descriptors &remote,
                            const std::string &agent, Request *&request, const Arguments *arguments) const = 0;
    virtual Status checkXfer(Request *request) const = 0;
    virtual Status releaseReqH(Request *request) const = 0;
    virtual Status prepMemView(const RemoteDescriptors &, void *&, const Arguments *) const {
        return Status::not_supported;
    }
    virtual Status prepMemView(const Descriptors &, void *&, const Arguments *) const {
        return Status::not_supported;
    }
    virtual void releaseMemView(void *) const {}
    virtual Status getPublicData(const Metadata *memory, std::string &out) const = 0;
    virtual Status getConnInfo(std::string &out) const = 0;
    virtual Status loadRemoteConnInfo(const std::string &agent, const std::string &info) = 0;
    virtual Status loadRemoteMD(const Registration &memory, const Segment &segment, const std::string &agent,
                                Metadata *&out) = 0;
    virtual Status loadLocalMD(Metadata *memory, Metadata *&out) = 0;
    virtual Status getNotifs(Notifications &out) = 0;
    virtual Status genNotif(const std::string &agent, const std::string &text) const = 0;
    virtual Status queryMem(const Registrations &, std::vector<std::optional<Parameters>> &) const {
        return Status::not_supported;
    }
    virtual Status estimateXferCost(const Operation &, const Descriptors &, const Descriptors &,
                                    const std::string &, Request *const &, std::chrono::microseconds &,
                                    std::chrono::microseconds &, int32_t &, const AgentArguments *) const {
        return Status::not_supported;
    }
};

// What nixl_plugin_init returns.
struct Plugin {
    int32_t version;
    Engine *(*create)(const Creation *creation);
    void (*destroy)(Engine *engine);
    const char *(*name)();
    const char *(*release)();
    Parameters (*parameters)();
    Segments (*segments)();
};

// The table of functions that NIXL 1.0 to 1.5 call has this version in all of them, and in others that differ.
constexpr int32_t plugin_version = 1;

static_assert(sizeof(std::string) == 32 && sizeof(Parameters) == 56 && sizeof(std::vector<char>) == 24);
static_assert(sizeof(Extent) == 24 && sizeof(Registration) == 56 && sizeof(Descriptor) == 32);
static_assert(sizeof(Metadata) == 16 && sizeof(Request) == 8);
static_assert(sizeof(Descriptors) == 40 && sizeof(Arguments) == 72);
static_assert(sizeof(Creation) == 96 && sizeof(Plugin) == 56);
static_assert(sizeof(Engine) == 208);

} // namespace abi
