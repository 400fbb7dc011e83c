// memory.c in C++20: one process writes the memory of another. It claims rows of a table with a counter and puts them,
// as for a parameter server.
//
//   c++ -std=c++20 memory.cpp $(pkg-config --cflags --libs zerolane) -o memory && ./memory
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <zerolane.h>

namespace {

constexpr std::size_t rows = 16, columns = 100000;
using Row = std::array<std::uint64_t, columns>;

// The layout that both ends know: a counter, then the table.
struct Shared {
    std::uint64_t next_row;
    std::array<Row, rows> table;
};

// Throws the library's error text if a call failed.
void check(zl_status status, const char *call)
{
    if (status != ZL_OK)
        throw std::runtime_error(std::string(call) + ": " + zl_status_text(status) + ": " + zl_last_error());
}

template <auto free> struct Free {
    template <typename Handle> void operator()(Handle *handle) const { free(handle); }
};
using Endpoint = std::unique_ptr<zl_endpoint, Free<zl_endpoint_free>>;
using Connection = std::unique_ptr<zl_connection, Free<zl_connection_free>>;
using Region = std::unique_ptr<zl_region, Free<zl_region_free>>;
using Exported = std::unique_ptr<zl_exported, Free<zl_exported_free>>;

// A region of `row`, which lives as long as Zerolane or the kernel uses it.
Region wrap(std::unique_ptr<Row> row)
{
    zl_region *region = nullptr;
    const auto release = [](void *, void *context) { delete static_cast<Row *>(context); };
    check(zl_region_wrap(row->data(), sizeof(Row), release, row.get(), &region), "wrap");
    row.release();
    return Region(region);
}

// Claims and fills rows until none are left.
void worker(const char *address)
{
    zl_connection *connected = nullptr;
    check(zl_connect(address, nullptr, &connected), "connect");
    Connection connection(connected);
    zl_key shared;
    check(zl_open_region(connected, "shared", ZL_RIGHT_WRITE | ZL_RIGHT_ATOMIC, &shared), "open");
    for (;;) {
        std::uint64_t claimed = 0;
        const std::uint64_t counter = offsetof(Shared, next_row);
        check(zl_fetch_op(connected, &shared, counter, ZL_FETCH_INCREMENT, 0, 0, &claimed), "claim");
        if (claimed >= rows)
            break;
        auto row = std::make_unique<Row>();
        std::iota(row->begin(), row->end(), claimed * columns);
        const Region region = wrap(std::move(row));
        zl_work how{};
        how.flags = ZL_WORK_IMMEDIATE;
        how.immediate = static_cast<std::uint32_t>(claimed);
        const std::uint64_t place = offsetof(Shared, table) + claimed * sizeof(Row);
        zl_completion completion;
        check(zl_post_put(connected, &shared, place, region.get(), 0, sizeof(Row), &how, nullptr), "put");
        check(zl_wait(connected, -1, &completion), "wait");
        check(completion.status, "put");
    }
    check(zl_close(connection.release()), "close");
}

// Adds up each row when its number arrives.
std::uint64_t reduce(zl_connection *connection)
{
    zl_region *allocated = nullptr;
    zl_exported *made = nullptr;
    zl_key key;
    zl_completion completion;
    std::uint64_t sum = 0;

    check(zl_region_new(sizeof(Shared), &allocated), "allocate");
    const Region region(allocated);
    const auto *shared = static_cast<const Shared *>(zl_region_data(allocated));
    check(zl_exported_new(allocated, 0, sizeof(Shared), &made), "export");
    const Exported exported(made);
    check(zl_export_named(connection, "shared", made, ZL_RIGHT_WRITE | ZL_RIGHT_ATOMIC, &key), "export");
    for (std::size_t arrived = 0; arrived < rows; arrived++) {
        check(zl_wait(connection, 10000, &completion), "wait");
        if (completion.kind != ZL_KIND_IMMEDIATE || completion.value >= rows)
            throw std::runtime_error("unexpected completion");
        const Row &row = shared->table[completion.value];
        sum = std::accumulate(row.begin(), row.end(), sum);
    }
    // The worker claims one more row, then closes.
    while (zl_wait(connection, 10000, &completion) == ZL_OK)
        continue;
    check(zl_exported_revoke(made), "revoke");
    return sum;
}

int run()
{
    zl_endpoint *listening = nullptr;
    std::array<char, ZL_ADDRESS_LENGTH> address;
    check(zl_endpoint_bind("127.0.0.1:0", nullptr, &listening), "listen");
    const Endpoint endpoint(listening);
    check(zl_endpoint_local_addr(listening, address.data(), address.size()), "address");
    const pid_t child = fork();
    if (child < 0)
        throw std::runtime_error("fork");
    if (child == 0) {
        worker(address.data());
        return EXIT_SUCCESS;
    }
    zl_connection *accepted = nullptr;
    check(zl_endpoint_accept(listening, 10000, &accepted), "accept");
    const Connection connection(accepted);
    constexpr std::uint64_t count = rows * columns;
    const std::uint64_t sum = reduce(accepted);
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0 || sum != count * (count - 1) / 2)
        throw std::runtime_error("the worker failed, or the sum is wrong");
    std::printf("%zu rows put and added up, all right\n", rows);
    return EXIT_SUCCESS;
}

} // namespace

int main()
{
    try {
        return run();
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return EXIT_FAILURE;
    }
}
