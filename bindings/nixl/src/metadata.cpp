// Writes and reads metadata. What is read may come from anyone: everything is checked.

#include "metadata.h"

namespace metadata {

namespace {

constexpr std::string_view first_line = "ZEROLANE 1";
constexpr size_t max_line = 128;
constexpr std::string_view remote_start = "ZL\x01";
constexpr size_t remote_length = 3 + 8 + 8 + 4;
// Numbers of exports are below it.
constexpr uint32_t numbers = 1 << 24;

std::string hexadecimal(const Token &token) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string text;
    for (const uint8_t byte : token) {
        text += digits[byte >> 4];
        text += digits[byte & 15];
    }
    return text;
}

int digit(char it) {
    if (it >= '0' && it <= '9')
        return it - '0';
    if (it >= 'a' && it <= 'f')
        return it - 'a' + 10;
    return -1;
}

bool read_token(std::string_view text, Token &token) {
    if (text.size() != 2 * token.size())
        return false;
    for (size_t i = 0; i < token.size(); ++i) {
        const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        token[i] = static_cast<uint8_t>(high << 4 | low);
    }
    return true;
}

// A name would have to be looked up, which takes time.
bool is_numeric_address(std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789abcdefABCDEF.:[]") == text.npos;
}

bool is_printable(std::string_view text) {
    for (const char it : text)
        if (it < ' ' || it > '~')
            return false;
    return true;
}

template <class Number> void append(std::string &text, Number number) {
    for (size_t i = 0; i < sizeof number; ++i)
        text += static_cast<char>(number >> (8 * i) & 0xff);
}

template <class Number> Number take(std::string_view &text) {
    Number number = 0;
    for (size_t i = 0; i < sizeof number; ++i)
        number |= static_cast<Number>(static_cast<uint8_t>(text[i])) << (8 * i);
    text.remove_prefix(sizeof number);
    return number;
}

} // namespace

std::string write(const Contact &contact) {
    std::string text{first_line};
    text += "\nkey " + contact.key + "\ntoken " + hexadecimal(contact.token) + "\nhost " + contact.host + "\n";
    for (const auto &address : contact.addresses)
        text += "at " + address + "\n";
    return text + "end\n";
}

std::optional<Contact> read_contact(std::string_view text, std::string &why) {
    Contact contact;
    bool has_key = false, has_token = false, has_host = false;
    for (size_t number = 0;; ++number) {
        const size_t length = text.find('\n');
        if (length == text.npos || length > max_line) {
            why = "it is cut short";
            return {};
        }
        const std::string_view line = text.substr(0, length);
        text.remove_prefix(length + 1);
        if (!is_printable(line)) {
            why = "it is no text";
            return {};
        }
        if (number == 0) {
            if (line != first_line) {
                why = "it is of another version of ZEROLANE: use one version of zerolane-nixl at both ends";
                return {};
            }
            continue;
        }
        if (line == "end")
            break;
        const size_t space = line.find(' ');
        const std::string_view name = line.substr(0, space);
        const std::string_view value = space == line.npos ? std::string_view{} : line.substr(space + 1);
        if (name == "key" && !has_key) {
            contact.key = value;
            has_key = true;
        } else if (name == "token" && !has_token && read_token(value, contact.token)) {
            has_token = true;
        } else if (name == "host" && !has_host) {
            contact.host = value;
            has_host = true;
        } else if (name == "at" && is_numeric_address(value) && contact.addresses.size() < max_addresses) {
            contact.addresses.emplace_back(value);
        } else {
            why = "it has a wrong line";
            return {};
        }
    }
    if (!text.empty() || !has_key || !has_token || !has_host || contact.addresses.empty()) {
        why = "it lacks a line, or has too many";
        return {};
    }
    return contact;
}

std::string write(const Remote &remote) {
    std::string text{remote_start};
    append(text, remote.base);
    append(text, remote.length);
    append(text, remote.number);
    return text;
}

std::optional<Remote> read_remote(std::string_view text, std::string &why) {
    if (text.size() != remote_length || text.substr(0, remote_start.size()) != remote_start) {
        why = "it is cut short, or of another version of ZEROLANE";
        return {};
    }
    text.remove_prefix(remote_start.size());
    Remote remote{};
    remote.base = take<uint64_t>(text);
    remote.length = take<uint64_t>(text);
    remote.number = take<uint32_t>(text);
    if (remote.number >= numbers || remote.base + remote.length < remote.base) {
        why = "it names memory that cannot exist";
        return {};
    }
    return remote;
}

} // namespace metadata
