/* lazy=gla: all rows of lazy layers borrow queries and keys (Global Lazy Attention). */
#include "policy/plan/lazy.h"

fv_status fv_plan_lazy_gla(fv_plan *plan) { return fv_plan_lazy(plan, true); }
