# lupine's build. A bare Debian 12 with make, a shell and apt can run `make
# demo` and `make test`: their first step installs the packages that are
# missing (spec/tools/setup.sh). Objects are built once, position-independent,
# and linked twice: into the host program and into the module for stock Lua.

BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
CC = gcc
# What CC compiles for (there is no compiler before setup).
ARCH := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))
JOBS ?= $(shell nproc)
VERSION := 0.1.0

# V=1 shows commands.
ifeq ($(V),1)
Q :=
say = @:
else
Q := @
say = @printf '  %-7s %s\n'
endif
# Recursive calls build in parallel even if the outer make was not told to.
submake = $(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(JOBS))

# --- flags ------------------------------------------------------------------
WARN := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes \
  -Wmissing-prototypes -Wwrite-strings -Wundef -Wvla -Wformat=2 -Werror
ifdef SANITIZE
OPT := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined \
  -fno-sanitize-recover=all
LDSAN := -fsanitize=address,undefined
else
OPT := -O2 -g
endif
# Both the program and the module for Lua are linked from the same objects;
# nothing replaces a function of the module, so calls may be inlined.
CFLAGS_ALL = -std=c11 -D_GNU_SOURCE $(WARN) $(OPT) -fPIC \
  -fno-semantic-interposition -fopenmp -fno-common -I. \
  -DLP_VERSION='"$(VERSION)"' $(CFLAGS)
# Only these may include lua.h, and only these find it.
LUA_CFLAGS := -I/usr/include/lua5.4
# Kernels: no -ffast-math, but neither errno nor traps matter to them. Loops of a
# few instructions that straddle a line of code took 1.5 times as long (Zen).
KERNEL_CFLAGS := -O3 -fno-math-errno -fno-trapping-math -falign-loops=32
SIMD_plain := -DLP_SIMD=plain
SIMD_avx2 := -DLP_SIMD=avx2 -mavx2 -mfma -mf16c
SIMD_avx512 := -DLP_SIMD=avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq \
  -mfma -mf16c
SIMD := plain
ifeq ($(ARCH),x86_64)
# Nearly all have AVX2: for the others the compiler need not unroll half a minute.
SIMD_plain += -O2
SIMD += avx2 avx512
AMX := $(SIMD_avx512) -mamx-tile -mamx-bf16
endif

LIBS := -Wl,--as-needed -ldnnl -lopenblas -ljansson -lprotobuf-c \
  -lzip -lpng -lturbojpeg -lutf8proc -lpcre2-8 -lz -lm -lgomp
HOST_LIBS := -llua5.4 -ledit
# libgomp's threads outlive lua_close: the module must stay mapped.
SO_FLAGS := -shared -Wl,-z,nodelete

# --- files ------------------------------------------------------------------
SRC := $(sort $(shell find src runtime -name '*.c' 2>/dev/null))
SIMD_SRC := $(foreach f,$(SRC),$(if $(filter simd_%,$(notdir $f)),$f))
MAIN_SRC := $(wildcard src/main*.c)
CORE_SRC := $(filter-out $(SIMD_SRC) $(MAIN_SRC),$(SRC))
TOOL_SRC := $(wildcard spec/tools/*.c)

OBJ := $(BUILD)/obj
CORE_OBJ := $(CORE_SRC:%.c=$(OBJ)/%.o) $(OBJ)/onnx.pb-c.o \
  $(foreach s,$(SIMD),$(SIMD_SRC:%.c=$(OBJ)/%.$(s).o))
BELOW_LUA_OBJ := $(filter-out $(OBJ)/src/bind/%,$(CORE_OBJ))
MAIN_OBJ := $(MAIN_SRC:%.c=$(OBJ)/%.o)
TOOLS := $(TOOL_SRC:spec/tools/%.c=$(BUILD)/tools/%)
FUZZ_SRC := $(wildcard spec/fuzz/*.c)
FUZZ := $(FUZZ_SRC:spec/fuzz/%.c=$(BUILD)/fuzz/%)
HARNESS_OBJ := $(OBJ)/spec/fuzz/harness/replay.o $(OBJ)/spec/fuzz/harness/lua.o

.PHONY: all api tools demo test run-demo run-test asan lint lint-fast format bench \
  check-full sweep fidelity golden meta install clean setup setup-lint
.DELETE_ON_ERROR:
.SECONDARY:

all: $(BUILD)/lupine $(BUILD)/lupine.so

$(BUILD)/lupine: $(MAIN_OBJ) $(CORE_OBJ)
	$(say) LINK $@
	$(Q)$(CC) $(LDSAN) -fopenmp -Wl,-E -o $@ $^ $(HOST_LIBS) $(LIBS) $(LDFLAGS)

$(BUILD)/lupine.so: $(CORE_OBJ)
	$(say) LINK $@
	$(Q)$(CC) $(LDSAN) -fopenmp $(SO_FLAGS) -o $@ $^ $(LIBS) $(LDFLAGS)

tools: $(TOOLS) $(FUZZ)

$(BUILD)/tools/%: $(OBJ)/spec/tools/%.o $(BELOW_LUA_OBJ)
	$(say) LINK $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -fopenmp -o $@ $^ $(LIBS) $(LDFLAGS)

# A fuzz target with a plain main, to run its corpus again.
$(BUILD)/fuzz/%: $(OBJ)/spec/fuzz/%.o $(HARNESS_OBJ) $(CORE_OBJ)
	$(say) LINK $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -fopenmp -o $@ $^ -llua5.4 $(LIBS) $(LDFLAGS)

# The same under libFuzzer. clang compiles what reads outside data again, with
# its coverage and AddressSanitizer; the rest is as the host has it.
CLANG = clang
CLANG_FLAGS = -std=c11 -D_GNU_SOURCE -O1 -g -fPIC -I. $(LUA_CFLAGS) \
  -fsanitize=address -fsanitize=fuzzer-no-link
FUZZ_COVER := $(filter src/base/buf.c src/base/mem.c src/io/% src/ir/% \
  src/tensor/% src/ops/custom/% runtime/exec/devices.c src/bind/host/json.c \
  src/bind/host/text.c,$(CORE_SRC))
FUZZ_COVER_OBJ := $(FUZZ_COVER:%.c=$(OBJ)/libfuzzer/%.o) \
  $(OBJ)/libfuzzer/spec/fuzz/harness/lua.o
$(OBJ)/libfuzzer/%.o: %.c
	$(say) CLANG $@
	@mkdir -p $(@D)
	$(Q)$(CLANG) $(CLANG_FLAGS) -MMD -MP -c -o $@ $<
$(BUILD)/libfuzzer/%: $(OBJ)/libfuzzer/spec/fuzz/%.o $(FUZZ_COVER_OBJ) $(CORE_OBJ)
	$(say) LINK $@
	@mkdir -p $(@D)
	$(Q)$(CLANG) -fsanitize=fuzzer,address -o $@ \
	  $(filter-out $(FUZZ_COVER:%.c=$(OBJ)/%.o),$^) -llua5.4 $(LIBS)

# Flags that a directory adds, then the one recipe that compiles.
$(OBJ)/src/bind/%.o $(OBJ)/spec/fuzz/%.o $(MAIN_OBJ): EXTRA = $(LUA_CFLAGS)
$(OBJ)/src/kernel/%.o: EXTRA = $(KERNEL_CFLAGS)
$(OBJ)/src/kernel/product/amx_%.o: EXTRA = $(KERNEL_CFLAGS) $(AMX)
define compile
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_ALL) $(EXTRA) $(1) -MMD -MP -c -o $@ $<
endef

define simd_rule
$(SIMD_SRC:%.c=$(OBJ)/%.$(1).o): $(OBJ)/%.$(1).o: %.c $(OBJ)/flags
	$$(call compile,$$(SIMD_$(1)))
endef
$(foreach s,$(SIMD),$(eval $(call simd_rule,$(s))))

$(OBJ)/%.o: %.c $(OBJ)/flags
	$(call compile,)

# The messages of ONNX, from the description that Debian's libonnx-dev has.
ONNX := $(BUILD)/onnx/onnx.pb-c
$(OBJ)/src/bind/host/onnx.o $(OBJ)/onnx.pb-c.o: EXTRA = -I$(dir $(ONNX)) $(LUA_CFLAGS)
$(OBJ)/src/bind/host/onnx.o: $(ONNX).h
$(OBJ)/onnx.pb-c.o: $(ONNX).c $(OBJ)/flags
	$(call compile,-w)
$(ONNX).c $(ONNX).h &: /usr/include/onnx/onnx.proto
	@mkdir -p $(@D)
	$(Q)protoc-c --c_out=$(@D) -I$(<D) $(<F)

# Changes only when the flags do, so that everything is compiled again.
FLAGS_NOW := $(CC) $(CFLAGS_ALL) $(KERNEL_CFLAGS) \
  $(foreach s,$(SIMD),$(SIMD_$(s)))
ifneq ($(file <$(OBJ)/flags),$(FLAGS_NOW))
.PHONY: $(OBJ)/flags
endif
$(OBJ)/flags:
	$(shell mkdir -p $(@D))$(file >$@,$(FLAGS_NOW))

# Below all lists of objects: := takes them as they are here.
DEPS := $(CORE_OBJ:.o=.d) $(MAIN_OBJ:.o=.d) \
  $(TOOL_SRC:%.c=$(OBJ)/%.d) $(FUZZ_SRC:%.c=$(OBJ)/%.d) $(HARNESS_OBJ:.o=.d) \
  $(FUZZ_COVER_OBJ:.o=.d) $(FUZZ_SRC:%.c=$(OBJ)/libfuzzer/%.d)
-include $(wildcard $(DEPS))

# --- use --------------------------------------------------------------------
setup:
	@sh spec/tools/setup.sh
setup-lint:
	@sh spec/tools/setup.sh lint

demo: setup
	+@$(submake) run-demo
run-demo: all
	@$(BUILD)/lupine examples/fashion_mnist.lua

test: setup
	+@$(submake) run-test
run-test: all tools
	@sh spec/tools/test.sh $(BUILD)

# The same suite under AddressSanitizer and UBSan (gcc brings both).
asan: setup
	+@$(submake) BUILD=build/asan SANITIZE=1 run-asan
.PHONY: run-asan
run-asan: all tools
	@sh spec/tools/test.sh $(BUILD) sanitized

lint: setup-lint
	+@$(submake) all tools
	@sh spec/tools/lint.sh full $(BUILD)
lint-fast: all tools
	@sh spec/tools/lint.sh fast $(BUILD)

format: setup-lint
	$(Q)clang-format -i $$(git ls-files '*.c' '*.h')

# Training steps against PyTorch's and JAX's: WORKLOADS, THREADS, PAIRS,
# SECONDS, PEERS, COMPILE, EAGER, STEP, PRECISION, CLOCK and PEERS_PYTHON choose
# (spec/bench/bench.lua). MORE=1: a second set of networks, torch.compile among
# the peers (COMPILE=0 leaves it out). OPS=1: single eager operators, or
# OPERATORS, at SIZES (spec/bench/operators/bench.lua).
bench: setup
	+@$(submake) all $(BUILD)/tools/peak
	@BUILD='$(BUILD)' THREADS='$(THREADS)' PAIRS='$(PAIRS)' \
	  SECONDS='$(SECONDS)' PEERS='$(PEERS)' COMPILE='$(COMPILE)' \
	  EAGER='$(EAGER)' MORE='$(MORE)' STEP='$(STEP)' CLOCK='$(CLOCK)' PEERS_PYTHON='$(PEERS_PYTHON)' \
	  PRECISION='$(PRECISION)' SIZES='$(SIZES)' $(BUILD)/lupine \
	  $(if $(OPS),spec/bench/operators/bench.lua $(OPERATORS),spec/bench/bench.lua $(WORKLOADS))

fidelity: setup
	+@$(submake) $(BUILD)/tools/fidelity
	@$(BUILD)/tools/fidelity $(ROWS)

# Results, gradients and trainings recorded from PyTorch (spec/golden/README.md)
# replayed: AREAS chooses; GOLDEN is another directory of the same form; REPLAY
# options of spec/golden/replay.lua.
GOLDEN ?= spec/golden
golden: setup
	+@$(submake) all
	@$(BUILD)/lupine spec/golden/replay.lua $(REPLAY) $(GOLDEN) $(AREAS)

# The documented names: whether they are there, and the specs that show them.
api: setup
	+@$(submake) all
	@$(BUILD)/lupine spec/api/api.lua

# libFuzzer over every reader of outside data, or FUZZERS, for FUZZ_SECONDS
# each (spec/fuzz/README.md).
FUZZERS ?= $(notdir $(FUZZ))
FUZZ_SECONDS ?= 60
.PHONY: fuzz
fuzz:
	@sh spec/tools/setup.sh fuzz
	+@$(submake) $(FUZZERS:%=$(BUILD)/libfuzzer/%)
	@sh spec/fuzz/fuzz.sh $(BUILD) $(FUZZ_SECONDS) $(FUZZERS)

# Compiled convolutions of many shapes against eager ones, in values and in time:
# SHAPES, COUNT, SEED, THREADS and VALUES choose (spec/sweep/conv.lua).
sweep: setup
	+@$(submake) all
	@$(BUILD)/lupine spec/sweep/conv.lua

# Random calls of the public interface under sanitizers, each of which follows
# from its number: CALLS of them from SEED on (spec/fuzz/README.md).
SEED ?= $(shell date +%s)
CALLS ?= 10000
.PHONY: fuzz-api
fuzz-api: setup
	+@$(submake) BUILD=build/asan SANITIZE=1 all
	@sh spec/fuzz/api/fuzz.sh build/asan $(SEED) $(CALLS)

# Everything there is: the suite, the suite under sanitizers, every check of
# style, the golden cases in every way, with deterministic algorithms and without,
# random calls, the sweeps, processes on one cache, killed saves, every example.
check-full: test asan lint golden
	$(BUILD)/lupine spec/golden/replay.lua --deterministic
	sh spec/tools/test.sh $(BUILD) slow
	+@$(submake) fuzz-api CALLS=100000
	$(BUILD)/lupine spec/sweep/conv.lua
	$(BUILD)/lupine spec/sweep/placements.lua
	$(BUILD)/lupine spec/sweep/systems.lua
	$(BUILD)/lupine spec/stress/cache.lua
	$(BUILD)/lupine spec/stress/checkpoint.lua
	@set -e; for f in examples/*.lua; do \
	  echo "  RUN     $$f"; $(BUILD)/lupine $$f >/dev/null; done

# The manual: a page a module and a guide, to be read from the folder (docs/site).
.PHONY: docs run-docs man
docs: setup
	+@$(submake) run-docs
run-docs: all
	@rm -rf $(BUILD)/docs && mkdir -p $(BUILD)/docs
	@$(BUILD)/lupine docs/site/build.lua $(BUILD)/docs

# Annotations for editors, of what Lua sources do not show.
meta: all
	@mkdir -p $(BUILD)/meta/torch/nn
	$(Q)$(BUILD)/lupine -e 'require("lupine.annotations").write("$(BUILD)/meta")'

man: all
	$(Q)$(BUILD)/lupine docs/site/man.lua $(BUILD)/lupine >$(BUILD)/lupine.1

# What is put below the prefix, but for directories: share/lupine/files has it, for
# uninstall.
ROOTS := $(notdir $(wildcard lua/*))
LIST_INSTALLED = \
  printf '%s\n' bin/lupine lib/lua/5.4/lupine.so share/man/man1/lupine.1 share/lupine/files \
    $(wildcard include/lupine/*.h) $(ROOTS:%=share/lua/5.4/%); \
  (cd lua && find . -type f) | sed 's,^\.,share/lupine,'; \
  (cd $(BUILD)/meta && find . -name '*.lua') | sed 's,^\.,share/lupine-meta,'

install: all meta man
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/lua/5.4
	install $(BUILD)/lupine $(DESTDIR)$(PREFIX)/bin/
	install -m 644 $(BUILD)/lupine.so $(DESTDIR)$(PREFIX)/lib/lua/5.4/
	install -d $(DESTDIR)$(PREFIX)/include/lupine
	install -m 644 include/lupine/*.h $(DESTDIR)$(PREFIX)/include/lupine/
	cd lua && find . -type f -exec install -D -m 644 \
	  {} $(abspath $(DESTDIR)$(PREFIX))/share/lupine/{} \;
	install -d $(DESTDIR)$(PREFIX)/share/lua/5.4
	for m in $(ROOTS); do ln -sfn ../../lupine/$$m \
	  $(DESTDIR)$(PREFIX)/share/lua/5.4/$$m; done
	install -D -m 644 $(BUILD)/lupine.1 $(DESTDIR)$(PREFIX)/share/man/man1/lupine.1
	cd $(BUILD)/meta && find . -name '*.lua' -exec install -D -m 644 \
	  {} $(abspath $(DESTDIR)$(PREFIX))/share/lupine-meta/{} \;
	$(Q){ $(LIST_INSTALLED); } >$(DESTDIR)$(PREFIX)/share/lupine/files

# The modules alone, where lupine-scm-1.rockspec wants them.
.PHONY: install-rock
install-rock: all
	install -d $(LUADIR) $(LIBDIR)
	install -m 755 $(BUILD)/lupine.so $(LIBDIR)/
	cp -R lua/. $(LUADIR)

# What install put there, and the folders that are lupine's alone.
.PHONY: uninstall deb
uninstall:
	$(Q)cd $(DESTDIR)$(PREFIX) && xargs -d '\n' rm -f <share/lupine/files && \
	  find share/lupine share/lupine-meta include/lupine -depth -type d -empty -delete

# A package of Debian in build/.
deb: all meta man run-docs
	@sh spec/tools/deb.sh $(BUILD) $(VERSION)

clean:
	rm -rf $(BUILD)
