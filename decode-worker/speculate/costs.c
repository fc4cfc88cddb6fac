/* Measures steps and weighs drafts. Times are noisy, and noise makes steps longer: a longer time counts a fifth, and
 * never as more than three times what was expected, a shorter one half. The first one of its kind counts half, and up to
 * ten times what was guessed. A step with fewer drafts is taken to cost no more than one with more. */
#include "decode-worker/speculate/costs.h"

static const uint64_t FRESH_STEPS = 2000, /* a time is trusted for so many steps */
    PLAIN_STEPS = 64;                     /* and that of a step without drafts for so many */
static const double ROW_GUESS = 0.04,     /* of a step: a drafted row, until one was measured */
    WORTH = 1.02,                         /* the least gain for which drafts run */
    LONGER = 0.2, SHORTER = 0.5, OUTLIER = 3, OUTLIER_FIRST = 10;

static int32_t class_of(int32_t n) {
    static const int32_t most[] = {8, 12, 16, 24, 32, 48, 64};
    int32_t c = 8;
    if (n <= c) return n;
    for (int32_t i = 1; i < 7 && n > most[i - 1]; i++) c++;
    return n > most[6] ? FV_COST_CLASSES - 1 : c;
}

/* The number of rows that stands for a class. */
static double rows_of(int32_t class) {
    static const double rows[FV_COST_CLASSES] = {0, 1,  2,  3,  4,  5,  6,  7,
                                                 8, 11, 15, 21, 29, 41, 57, 80};
    return rows[class];
}

static double measured(const fv_step_costs *c, int32_t answers, int32_t drafts) {
    uint64_t at = c->cell[answers][drafts].at;
    return at > 0 && c->steps - at < FRESH_STEPS ? c->cell[answers][drafts].s : 0;
}

/* The time without drafts, if that was measured: at most that of any step with some. */
static double plain_of(const fv_step_costs *c, int32_t answers) {
    double least = measured(c, answers, 0);
    for (int32_t d = 1; least > 0 && d < FV_COST_CLASSES; d++) {
        double s = measured(c, answers, d);
        if (s > 0 && s < least) least = s;
    }
    return least;
}

double fv_step_costs_plain(const fv_step_costs *c, int32_t n_answer) {
    return plain_of(c, class_of(n_answer));
}

/* Estimates the ratio from that of another class, in proportion to the rows. */
static double scaled(double ratio, int32_t n_draft, int32_t class) {
    return 1 + (ratio - 1) * n_draft / rows_of(class);
}

/* The ratio of a class that was measured: at most that of any with more drafts. */
static double measured_ratio(const fv_step_costs *c, int32_t answers, int32_t drafts,
                             double plain) {
    double least = measured(c, answers, drafts);
    for (int32_t d = drafts + 1; d < FV_COST_CLASSES; d++) {
        double s = measured(c, answers, d);
        if (s > 0 && s < least) least = s;
    }
    return least / plain;
}

double fv_step_costs_ratio(const fv_step_costs *c, int32_t n_answer, int32_t n_draft) {
    int32_t a = class_of(n_answer), d = class_of(n_draft), below = d - 1, above = d + 1;
    double plain = plain_of(c, a), ratio = 1 + ROW_GUESS * n_draft;
    if (n_draft == 0 || plain == 0) return ratio;
    if (measured(c, a, d) > 0) return measured_ratio(c, a, d, plain);
    while (below > 0 && measured(c, a, below) == 0) below--;
    while (above < FV_COST_CLASSES && measured(c, a, above) == 0) above++;
    double up = below > 0 ? scaled(measured_ratio(c, a, below, plain), n_draft, below) : 0;
    double down =
        above < FV_COST_CLASSES ? scaled(measured_ratio(c, a, above, plain), n_draft, above) : up;
    if (up == 0) up = down;
    return up == 0 ? ratio : up < down ? up : down;
}

void fv_step_costs_note(fv_step_costs *c, int32_t n_answer, int32_t n_draft, double seconds) {
    int32_t a = class_of(n_answer), d = class_of(n_draft);
    double plain = plain_of(c, a), was = measured(c, a, d), longer = LONGER, most = OUTLIER * was;
    if (was == 0 && d > 0 && plain > 0) {
        was = plain * fv_step_costs_ratio(c, n_answer, n_draft);
        longer = SHORTER;
        most = OUTLIER_FIRST * was;
    }
    c->steps++;
    c->cell[a][d].at = c->steps;
    if (was == 0) {
        c->cell[a][d].s = seconds;
        return;
    }
    if (seconds > most) seconds = most;
    c->cell[a][d].s = was + (seconds > was ? longer : SHORTER) * (seconds - was);
}

int32_t fv_step_costs_choose(const fv_step_costs *c, int32_t n_answer, const float *gain,
                             int32_t n_gain) {
    int32_t a = class_of(n_answer), best = 0;
    uint64_t at = c->cell[a][0].at;
    if (at == 0 || c->steps - at >= PLAIN_STEPS) return 0;
    double tokens = n_answer, most = WORTH * n_answer;
    for (int32_t d = 1; d <= n_gain; d++) {
        tokens += (double)gain[d - 1];
        double rate = tokens / fv_step_costs_ratio(c, n_answer, d);
        if (rate > most) most = rate, best = d;
    }
    return best;
}
