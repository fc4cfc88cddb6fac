/* lazy=vla: image tokens of lazy layers borrow queries and keys (Visual Lazy Attention). */
#include "policy/plan/lazy.h"

fv_status fv_plan_lazy_vla(fv_plan *plan) { return fv_plan_lazy(plan, false); }
