# Installs the program, its manual, its completions and its service: make install PREFIX=/usr/local [DESTDIR=...]
#
# zerolane-bench, which has all commands, makes the manual and the completions from its command-line parser. `zerolane bench`
# and `zerolane demo` start it.

PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
# The directory of the nbdkit plugin, and of the library that `zerolane run` loads: ../lib/zerolane, seen from BINDIR.
LIBDIR ?= $(PREFIX)/lib/zerolane
MANDIR ?= $(PREFIX)/share/man
BASHDIR ?= $(PREFIX)/share/bash-completion/completions
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions
FISHDIR ?= $(PREFIX)/share/fish/vendor_completions.d
UNITDIR ?= $(PREFIX)/lib/systemd/system
SYSCONFDIR ?= /etc
CARGO ?= cargo
INSTALL ?= install
STRIP ?= strip

built = $(or $(CARGO_TARGET_DIR),target)/release
made = $(built)/generated
# Keeps an existing file, which belongs to the administrator.
install_once = test -e $(DESTDIR)$(2) || $(INSTALL) -D -m 644 $(1) $(DESTDIR)$(2)

services = zerolane.service zerolane-forward@.service zerolane-forward-serve.service zerolane@.service

.PHONY: build install uninstall deb

build:
	$(CARGO) build --locked --release --package zerolane-cli --package zerolane-bench --package zerolane-nbdkit \
		--package zerolane-preload
	$(RM) -r $(made)
	$(built)/zerolane-bench generate $(made)

install: build
	$(INSTALL) -D -m 755 $(built)/zerolane $(DESTDIR)$(BINDIR)/zerolane
	$(INSTALL) -D -m 755 $(built)/zerolane-bench $(DESTDIR)$(BINDIR)/zerolane-bench
	$(INSTALL) -D -m 644 $(built)/libzerolane_nbdkit.so $(DESTDIR)$(LIBDIR)/libzerolane_nbdkit.so
	$(INSTALL) -D -m 644 $(built)/libzerolane_sockets.so $(DESTDIR)$(LIBDIR)/libzerolane-sockets.so
	$(INSTALL) -d $(DESTDIR)$(MANDIR)/man1 $(DESTDIR)$(UNITDIR)
	$(INSTALL) -m 644 $(made)/man1/*.1 $(DESTDIR)$(MANDIR)/man1
	$(INSTALL) -D -m 644 $(made)/bash/zerolane.bash $(DESTDIR)$(BASHDIR)/zerolane
	$(INSTALL) -D -m 644 $(made)/zsh/_zerolane $(DESTDIR)$(ZSHDIR)/_zerolane
	$(INSTALL) -D -m 644 $(made)/fish/zerolane.fish $(DESTDIR)$(FISHDIR)/zerolane.fish
	for unit in $(services); do \
		sed -e 's,/usr/bin/zerolane,$(BINDIR)/zerolane,' -e 's,/etc/,$(SYSCONFDIR)/,' packaging/$$unit \
			>$(DESTDIR)$(UNITDIR)/$$unit && chmod 644 $(DESTDIR)$(UNITDIR)/$$unit || exit 1; \
	done
	$(INSTALL) -m 644 packaging/zerolane.socket $(DESTDIR)$(UNITDIR)
	$(call install_once,packaging/zerolane.default,$(SYSCONFDIR)/default/zerolane)
	$(call install_once,packaging/allowed_keys,$(SYSCONFDIR)/zerolane/allowed_keys)

# Keeps the administrator's files.
uninstall:
	$(RM) $(DESTDIR)$(LIBDIR)/libzerolane_nbdkit.so $(DESTDIR)$(LIBDIR)/libzerolane-sockets.so \
		$(DESTDIR)$(BINDIR)/zerolane $(DESTDIR)$(BINDIR)/zerolane-bench $(DESTDIR)$(MANDIR)/man1/zerolane.1 $(DESTDIR)$(MANDIR)/man1/zerolane-*.1 \
		$(DESTDIR)$(BASHDIR)/zerolane $(DESTDIR)$(ZSHDIR)/_zerolane $(DESTDIR)$(FISHDIR)/zerolane.fish \
		$(addprefix $(DESTDIR)$(UNITDIR)/,$(services) zerolane.socket)

# Needs cargo-deb (cargo install cargo-deb --locked). Writes the package below $(built)/../debian.
# DEBFLAGS=--fast compresses less.
# cargo-deb strips only programs of its own package.
deb: build
	$(STRIP) -o $(made)/zerolane-bench $(built)/zerolane-bench
	$(STRIP) --strip-unneeded -o $(made)/libzerolane_nbdkit.so $(built)/libzerolane_nbdkit.so
	$(STRIP) --strip-unneeded -o $(made)/libzerolane-sockets.so $(built)/libzerolane_sockets.so
	$(CARGO) deb --locked --package zerolane-cli --no-build --strip $(DEBFLAGS)
