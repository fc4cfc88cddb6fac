# fovea_add_test(KIND NAME PROGRAM [ARGUMENT...])
#
# The test KIND/NAME. What can test nothing here prints "skip: why" and exits with 77, or is a Criterion suite that
# skips each of its cases.
#
# Tests with the label `smoke` are those that `./dev test` runs under the sanitizers, and the target `smoke` builds
# their programs: code that reads what others send, that owns connections, threads and memory, and both workers as
# programs. The numerics have no pointers that a stranger moves, and their tests take minutes there: `./dev test
# --long` runs them under the sanitizers too.
set(smoke_tests "^(race|fuzz)/|^unit/(auth|common|decode-worker|gateway|handoff|kv|model|out_of_memory|router|rpc|serving|telemetry|text|transport|video)/\
|^e2e/(callers|decode_worker|health|prefill_refusals|prefill_worker|up)$") # e2e: the program e2e_smoke
set(slow_when_sanitized
    "^unit/decode-worker/(receive/handoff|receive/unpack|evict/.*|conversations/recompress)$|^unit/(kv|model/net|model/latent|model/synth)/|^unit/text/tokenizer$")
if(FOVEA_SANITIZE)
  add_custom_target(smoke)
  if(FOVEA_SANITIZE MATCHES thread) # for both workers the whole product would be compiled once more
    string(APPEND slow_when_sanitized "|^race/race_workers$")
  endif()
else()
  set(smoke_tests "^$")
endif()
# Seconds on two busy cores. The slow ones begin first, so that none of them ends the run alone.
set(slow_tests e2e/.*=10 deploy/.*=20 ops/ops_run_.*=15 unit/.*/every_policy=15 unit/kv/cache/prefix=20 ops/ops_device_nano=25
    "e2e/(kill|device|eval)=30" "deploy/(chart|manifests)=35" eval/again=40 e2e/fleet=40 "ops/ops_run_(avx2|avx512|cuda)=45" e2e/gateway=50
    deploy/rollout_.*=55 ops/ops_run_cuda-exact=60 "unit/prefill-worker/job/(golden|job_prefix)=70" eval/trained=75)
set(sanitizer_words "(ERROR|SUMMARY): [A-Za-z]+Sanitizer|runtime error:")
# A size that no machine has is FV_ENOMEM, also when AddressSanitizer allocates.
set(sanitizer_options "ASAN_OPTIONS=allocator_may_return_null=1" "UBSAN_OPTIONS=print_stacktrace=1"
    "TSAN_OPTIONS=halt_on_error=1")

# A leak that LeakSanitizer finds in a Criterion test does not fail the program, nor does a filter that no
# case passes: their words do.
function(fovea_add_test kind name program)
  set(test ${kind}/${name})
  set(limit 600)
  if(FOVEA_SANITIZE)
    set(limit 2400)
  endif()
  add_test(NAME ${test} COMMAND ${program} ${ARGN})
  set_tests_properties(${test} PROPERTIES LABELS ${kind} TIMEOUT ${limit} SKIP_RETURN_CODE 77
    FAIL_REGULAR_EXPRESSION "${sanitizer_words};Tested: 0 " ENVIRONMENT "${sanitizer_options}")
  foreach(slow IN LISTS slow_tests)
    string(REPLACE "=" ";" slow "${slow}")
    list(GET slow 0 pattern)
    list(GET slow 1 seconds)
    if(test MATCHES "^${pattern}$")
      set_tests_properties(${test} PROPERTIES COST ${seconds})
    endif()
  endforeach()
  if(test MATCHES "${smoke_tests}" AND NOT test MATCHES "${slow_when_sanitized}")
    set_property(TEST ${test} APPEND PROPERTY LABELS smoke)
    add_dependencies(smoke ${program})
  endif()
  if(kind STREQUAL long)
    set_tests_properties(${kind}/${name} PROPERTIES TIMEOUT 3600)
  endif()
endfunction()

# fovea_long(TEST...): these have the label `long` beside their own. `./dev test` leaves them out, `./dev test --long`
# does not.
function(fovea_long)
  foreach(test IN LISTS ARGN)
    set_property(TEST ${test} APPEND PROPERTY LABELS long)
    set_property(TEST ${test} PROPERTY TIMEOUT 3600)
  endforeach()
endfunction()

# fovea_suites(PROGRAM KIND BASE SOURCE...)
#
# One Criterion program. Each source test_SUITE.c has the suite SUITE, which is a test of its own: KIND/SUITE,
# with the folders from BASE on between them.
function(fovea_suites program kind base)
  add_executable(${program} ${ARGN})
  target_link_libraries(${program} PRIVATE test_support PkgConfig::CRITERION fovea_flags)
  # What Criterion's macros become takes the compiler twice as long when it is optimised, and a quarter more when
  # undefined behaviour is looked for in them.
  target_compile_options(${program} PRIVATE -O0 -g1 -fno-sanitize=undefined)
  list(FILTER ARGN INCLUDE REGEX "/test_[^/]*$")
  foreach(source IN LISTS ARGN)
    file(RELATIVE_PATH name ${base} ${source})
    string(REGEX REPLACE "test_([^/]*)\\.c$" "\\1" name ${name})
    get_filename_component(suite ${name} NAME)
    # Verbose, or Criterion says nothing of the cases that it skipped. ctest looks for these words before those of failures.
    fovea_add_test(${kind} ${name} ${program} --verbose --filter ${suite}/*)
    set_tests_properties(${kind}/${name} PROPERTIES SKIP_REGULAR_EXPRESSION "\\[SKIP\\] ${suite}::.*Tested: 0 ")
  endforeach()
endfunction()
