/* The tests that follow `is`. */
#include <string.h>

#include "text/jinja/internal.h"

#define TEST(name, holds)                                                                          \
    static fv_status name(fv_jj_run *r, const fv_jj_value *self, const fv_jj_args *args,           \
                          fv_jj_value *out) {                                                      \
        (void)r, (void)self;                                                                       \
        (void)args;                                                                                \
        *out = fv_jj_bool(holds);                                                                  \
        return FV_OK;                                                                              \
    }

TEST(defined, self->kind != FV_JJ_UNDEFINED)
TEST(undefined, self->kind == FV_JJ_UNDEFINED)
TEST(none, self->kind == FV_JJ_NONE)
TEST(string, self->kind == FV_JJ_STR)
TEST(mapping, self->kind == FV_JJ_DICT)
TEST(number, fv_jj_is_number(self))
TEST(integer, self->kind == FV_JJ_INT)
TEST(real, self->kind == FV_JJ_FLOAT)
TEST(boolean, self->kind == FV_JJ_BOOL)
TEST(is_true, self->kind == FV_JJ_BOOL && self->b)
TEST(is_false, self->kind == FV_JJ_BOOL && !self->b)
TEST(callable, self->kind == FV_JJ_CALLABLE)
TEST(escaped, false)
TEST(sequence, self->kind == FV_JJ_UNDEFINED || self->kind == FV_JJ_STR ||
                   self->kind == FV_JJ_LIST || self->kind == FV_JJ_TUPLE ||
                   self->kind == FV_JJ_DICT)
TEST(iterable, self->kind == FV_JJ_UNDEFINED || self->kind == FV_JJ_LOOP ||
                   (self->kind >= FV_JJ_STR && self->kind <= FV_JJ_DICT))

static fv_status other(fv_jj_run *r, const fv_jj_args *args, const fv_jj_value **out) {
    *out = args->bound[0];
    if (*out) return FV_OK;
    return FV_JJ_FAIL(r, FV_EINVAL, "the test needs %s", "a value to compare with");
}

#define COMPARISON(name, holds)                                                                    \
    static fv_status name(fv_jj_run *r, const fv_jj_value *self, const fv_jj_args *args,           \
                          fv_jj_value *out) {                                                      \
        const fv_jj_value *with;                                                                   \
        int sign;                                                                                  \
        FV_TRY(other(r, args, &with));                                                             \
        FV_TRY(fv_jj_order(r, self, with, &sign));                                                 \
        *out = fv_jj_bool(holds);                                                                  \
        return FV_OK;                                                                              \
    }

COMPARISON(less, sign < 0)
COMPARISON(more, sign > 0)
COMPARISON(at_most, sign <= 0)
COMPARISON(at_least, sign >= 0)

static fv_status same(fv_jj_run *r, const fv_jj_value *self, const fv_jj_args *args,
                      fv_jj_value *out) {
    const fv_jj_value *with;
    FV_TRY(other(r, args, &with));
    *out = fv_jj_bool(fv_jj_equal(r, self, with));
    return FV_OK;
}

static fv_status differs(fv_jj_run *r, const fv_jj_value *self, const fv_jj_args *args,
                         fv_jj_value *out) {
    FV_TRY(same(r, self, args, out));
    out->b = !out->b;
    return FV_OK;
}

static fv_status is_in(fv_jj_run *r, const fv_jj_value *self, const fv_jj_args *args,
                       fv_jj_value *out) {
    const fv_jj_value *with;
    bool holds;
    FV_TRY(other(r, args, &with));
    FV_TRY(fv_jj_contains(r, with, self, &holds));
    *out = fv_jj_bool(holds);
    return FV_OK;
}

/* Approximates Python's `is`: the same kind and equal, as for None, booleans and small integers. */
static fv_status same_as(fv_jj_run *r, const fv_jj_value *self, const fv_jj_args *args,
                         fv_jj_value *out) {
    const fv_jj_value *with;
    FV_TRY(other(r, args, &with));
    *out = fv_jj_bool(self->kind == with->kind && fv_jj_equal(r, self, with));
    return FV_OK;
}

static fv_status rest(fv_jj_run *r, const fv_jj_value *v, const fv_jj_value *by, fv_jj_value *out) {
    FV_TRY(fv_jj_arithmetic(r, '%', v, by, out));
    *out = fv_jj_bool(!fv_jj_truth(out));
    return FV_OK;
}

static fv_status divisible(fv_jj_run *r, const fv_jj_value *self, const fv_jj_args *args,
                           fv_jj_value *out) {
    const fv_jj_value *by;
    FV_TRY(other(r, args, &by));
    return rest(r, self, by, out);
}

static fv_status even(fv_jj_run *r, const fv_jj_value *self, const fv_jj_args *args,
                      fv_jj_value *out) {
    fv_jj_value two = fv_jj_int(2);
    (void)args;
    return rest(r, self, &two, out);
}

static fv_status odd(fv_jj_run *r, const fv_jj_value *self, const fv_jj_args *args,
                     fv_jj_value *out) {
    FV_TRY(even(r, self, args, out));
    out->b = !out->b;
    return FV_OK;
}

/* str.isupper, str.islower: no letter of the other case, and one at least of this. */
static fv_status of_case(fv_jj_run *r, const fv_jj_value *self, fv_jj_case is, fv_jj_case is_not,
                         fv_jj_value *out) {
    fv_jj_str s;
    fv_jj_value kept, changed;
    FV_TRY(fv_jj_str_of(r, self, &s));
    fv_jj_value v = fv_jj_of(s);
    FV_TRY(fv_jj_recase(r, s, is, &kept));
    FV_TRY(fv_jj_recase(r, s, is_not, &changed));
    *out = fv_jj_bool(fv_jj_equal(r, &kept, &v) && !fv_jj_equal(r, &changed, &v));
    return FV_OK;
}

static fv_status upper(fv_jj_run *r, const fv_jj_value *self, const fv_jj_args *args,
                       fv_jj_value *out) {
    (void)args;
    return of_case(r, self, FV_JJ_UPPER, FV_JJ_LOWER, out);
}

static fv_status lower(fv_jj_run *r, const fv_jj_value *self, const fv_jj_args *args,
                       fv_jj_value *out) {
    (void)args;
    return of_case(r, self, FV_JJ_LOWER, FV_JJ_UPPER, out);
}

const fv_jj_row fv_jj_tests[] = {{"defined", "", defined},
                                 {"undefined", "", undefined},
                                 {"none", "", none},
                                 {"string", "", string},
                                 {"mapping", "", mapping},
                                 {"number", "", number},
                                 {"integer", "", integer},
                                 {"float", "", real},
                                 {"boolean", "", boolean},
                                 {"true", "", is_true},
                                 {"false", "", is_false},
                                 {"callable", "", callable},
                                 {"escaped", "", escaped},
                                 {"sequence", "", sequence},
                                 {"iterable", "", iterable},
                                 {"eq", "other", same},
                                 {"equalto", "other", same},
                                 {"==", "other", same},
                                 {"ne", "other", differs},
                                 {"!=", "other", differs},
                                 {"lt", "other", less},
                                 {"lessthan", "other", less},
                                 {"<", "other", less},
                                 {"gt", "other", more},
                                 {"greaterthan", "other", more},
                                 {">", "other", more},
                                 {"le", "other", at_most},
                                 {"<=", "other", at_most},
                                 {"ge", "other", at_least},
                                 {">=", "other", at_least},
                                 {"in", "seq", is_in},
                                 {"sameas", "other", same_as},
                                 {"divisibleby", "num", divisible},
                                 {"even", "", even},
                                 {"odd", "", odd},
                                 {"upper", "", upper},
                                 {"lower", "", lower},
                                 {0}};
