// The engine that NIXL calls: checks what it is given, and lets no exception out.

#include "engine.h"

#include "agent.h"
#include "log.h"
#include "settings.h"

#include <exception>

namespace {

class Zerolane final : public abi::Engine {
  public:
    Zerolane(const abi::Creation &creation, const Settings &settings)
        : abi::Engine(creation), own_(std::make_unique<Agent>(creation.agent, settings)) {}

    ~Zerolane() override {
        // A child of fork has neither the driver nor the connections, which stay the parent's.
        if (!own_->is_of_this_process())
            static_cast<void>(own_.release());
    }

    bool supportsRemote() const override { return true; }
    bool supportsLocal() const override { return true; }
    bool supportsNotif() const override { return true; }
    abi::Segments getSupportedMems() const override { return {abi::Segment::dram}; }

    abi::Status registerMem(const abi::Registration &memory, const abi::Segment &segment,
                            abi::Metadata *&out) override {
        return guarded([&](Agent &own) {
            if (segment != abi::Segment::dram) {
                logging::error("only memory of the host can be registered (DRAM_SEG), not that of a GPU (VRAM_SEG): in "
                               "vLLM set kv_buffer_device=cpu");
                return abi::Status::not_supported;
            }
            if (memory.address + memory.length < memory.address) {
                logging::error("memory cannot be registered: it ends beyond the address space");
                return abi::Status::invalid_param;
            }
            std::shared_ptr<Block> block;
            const abi::Status status = own.add_memory(memory.address, memory.length, block);
            if (status == abi::Status::success)
                out = new LocalMemory(std::move(block));
            return status;
        });
    }

    abi::Status deregisterMem(abi::Metadata *memory) override {
        return guarded([&](Agent &own) {
            const std::unique_ptr<LocalMemory> local(static_cast<LocalMemory *>(memory));
            if (local)
                own.remove_memory(local->block);
            return abi::Status::success;
        });
    }

    abi::Status connect(const std::string &agent) override {
        return guarded([&](Agent &own) { return own.connect(agent); });
    }

    abi::Status disconnect(const std::string &agent) override {
        return guarded([&](Agent &own) { return own.disconnect(agent); });
    }

    abi::Status unloadMD(abi::Metadata *memory) override {
        delete memory;
        return abi::Status::success;
    }

    abi::Status prepXfer(const abi::Operation &operation, const abi::Descriptors &local,
                         const abi::Descriptors &remote, const std::string &agent, abi::Request *&request,
                         const abi::Arguments *) const override {
        return guarded([&](Agent &) {
            std::string why;
            auto transfer = plan(operation, local, remote, agent, agent == agent_, why);
            if (!transfer) {
                logging::error("no transfer with agent " + agent + ": " + why);
                return abi::Status::invalid_param;
            }
            request = transfer.release();
            return abi::Status::success;
        });
    }

    abi::Status postXfer(const abi::Operation &, const abi::Descriptors &, const abi::Descriptors &,
                         const std::string &, abi::Request *&request, const abi::Arguments *arguments) const override {
        return guarded([&](Agent &own) {
            auto *const transfer = static_cast<Transfer *>(request);
            return transfer ? own.post(*transfer, arguments) : abi::Status::invalid_param;
        });
    }

    abi::Status checkXfer(abi::Request *request) const override {
        return guarded([&](Agent &own) {
            auto *const transfer = static_cast<Transfer *>(request);
            return transfer ? own.check(*transfer) : abi::Status::invalid_param;
        });
    }

    abi::Status releaseReqH(abi::Request *request) const override {
        return guarded([&](Agent &own) {
            if (request)
                own.release(static_cast<Transfer *>(request));
            return abi::Status::success;
        });
    }

    abi::Status getPublicData(const abi::Metadata *memory, std::string &out) const override {
        return guarded([&](Agent &) {
            const Block &block = *static_cast<const LocalMemory *>(memory)->block;
            out = metadata::write(metadata::Remote{block.base, block.length, block.number});
            return abi::Status::success;
        });
    }

    abi::Status getConnInfo(std::string &out) const override {
        return guarded([&](Agent &own) {
            out = own.contact();
            return abi::Status::success;
        });
    }

    abi::Status loadRemoteConnInfo(const std::string &agent, const std::string &info) override {
        return guarded([&](Agent &own) {
            std::string why;
            auto contact = metadata::read_contact(info, why);
            if (!contact) {
                logging::error("the metadata of agent " + agent + " is wrong: " + why);
                return abi::Status::mismatch;
            }
            return own.add_peer(agent, std::move(*contact));
        });
    }

    abi::Status loadRemoteMD(const abi::Registration &memory, const abi::Segment &segment, const std::string &agent,
                             abi::Metadata *&out) override {
        return guarded([&](Agent &) {
            std::string why;
            const auto remote = metadata::read_remote(memory.blob, why);
            if (!remote || segment != abi::Segment::dram) {
                logging::error("the metadata of memory of agent " + agent + " is wrong: " +
                               (remote ? "it is not of DRAM" : why));
                return abi::Status::mismatch;
            }
            out = new RemoteMemory(agent, *remote);
            return abi::Status::success;
        });
    }

    // A second object: NIXL unloads it, and some versions do so after deregisterMem.
    abi::Status loadLocalMD(abi::Metadata *memory, abi::Metadata *&out) override {
        return guarded([&](Agent &) {
            out = new LocalMemory(static_cast<LocalMemory *>(memory)->block);
            return abi::Status::success;
        });
    }

    abi::Status getNotifs(abi::Notifications &out) override {
        return guarded([&](Agent &own) {
            own.take_notifications(out);
            return abi::Status::success;
        });
    }

    abi::Status genNotif(const std::string &agent, const std::string &text) const override {
        return guarded([&](Agent &own) { return own.notify(agent, text); });
    }

  private:
    std::unique_ptr<Agent> own_;

    // Runs a call of NIXL's.
    template <class Body> abi::Status guarded(Body body) const noexcept {
        try {
            if (own_->is_of_this_process())
                return body(*own_);
            logging::error("agent " + agent_ + " belongs to the parent of this process: make another one after fork");
        } catch (const std::exception &error) {
            try {
                logging::error("agent " + agent_ + ": " + error.what());
            } catch (...) {
                // No memory for the sentence.
            }
        }
        return abi::Status::backend;
    }
};

} // namespace

abi::Engine *make_engine(const abi::Creation &creation) noexcept {
    try {
        const auto settings = read_settings(*creation.parameters);
        return settings ? new Zerolane(creation, *settings) : nullptr;
    } catch (const std::exception &error) {
        try {
            logging::error("agent " + creation.agent + " cannot be made: " + error.what());
        } catch (...) {
            // No memory for the sentence.
        }
    }
    return nullptr;
}
