// Reads metadata that were changed at random. Sanitizers tell of wrong accesses; what is read must be written back alike.

#include "metadata.h"

#include <cstdio>
#include <cstdlib>
#include <random>

namespace {

std::mt19937_64 random_numbers(7);

size_t below(size_t bound) { return random_numbers() % bound; }

std::string changed(std::string text) {
    for (size_t i = below(4); i > 0 && !text.empty(); --i) {
        const size_t at = below(text.size());
        switch (below(4)) {
        case 0:
            text[at] = static_cast<char>(below(256));
            break;
        case 1:
            text.erase(at, below(text.size() - at) + 1);
            break;
        case 2:
            text.insert(at, text.substr(below(text.size()), below(40)));
            break;
        default:
            text[at] = "\n :.[]0az"[below(9)];
        }
    }
    return text;
}

} // namespace

int main(int, char **arguments) {
    metadata::Contact contact;
    contact.key = "zl:0123456789abcdefghijklmnopqrstuvwxyzABCDEFG";
    contact.host = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6 4026531840";
    contact.addresses = {"198.18.0.1:4711", "[2001:db8::1]:4711"};
    const std::string text = metadata::write(contact), memory = metadata::write(metadata::Remote{1 << 20, 4096, 5});
    size_t good = 0;
    for (long left = std::atol(arguments[1]); left > 0; --left) {
        std::string why;
        if (const auto read = metadata::read_contact(changed(text), why)) {
            ++good;
            const auto again = metadata::read_contact(metadata::write(*read), why);
            if (!again || *again != *read || read->addresses.size() > metadata::max_addresses)
                return std::puts("a contact changes when it is written"), 1;
        } else if (why.empty()) {
            return std::puts("no reason"), 1;
        }
        if (const auto read = metadata::read_remote(changed(memory), why)) {
            ++good;
            if (read->number >= 1 << 24 || read->base + read->length < read->base)
                return std::puts("memory that cannot exist"), 1;
        }
    }
    std::printf("%zu were good\n", good);
    return good == 0;
}
