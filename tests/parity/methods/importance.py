"""evict=importance: packed rows that leave by the attention that the prompt gave them; evict=vta,order=ema: by
the attention that they receive all along; select=csp,heads=shared ahead of pack. Rendered in svd.py."""
from network import Shape, case
from svd import methods


def render():
    narrow, two = Shape(n_layer=3, n_head=4, n_kv=1), "t5 v50 t3 v50 t6"
    return {"networks": [
        case("pack=svd,rank_k=16,rank_v=16,gain=0,block=3;expand=attention,parts=both;"
             "evict=importance,keep=0.8", methods, two, shape=narrow),
        case("pack=svd,rank_k=48,rank_v=44,gain=0;evict=importance,keep=0.4", methods),
        case("pack=svd,rank_k=16,rank_v=16,gain=0,block=3;expand=attention,parts=both;"
             "evict=importance,keep=0.3", methods, two, shape=narrow),
        case("pack=svd,rank_k=16,rank_v=16,gain=0,block=4;expand=attention;"
             "evict=vta,order=ema,tau=5,layer=1,shallow=rank_by_first_tap", methods, "t3 v200 t8",
             shape=narrow, answer=5),
        case("pack=svd,rank_k=16,rank_v=16,gain=0,block=16;expand=attention,alpha=0.6;"
             "evict=vta,order=ema,tau=4,layer=2", methods, "t3 v64 t8", shape=narrow, answer=4),
        case("select=csp,heads=shared,heavy=0.4,recent=0.1;pack=svd,rank_k=16,rank_v=16,gain=0,"
             "block=4;expand=attention", methods, two, shape=narrow),
        case("select=csp,heads=shared,heavy=0.5,recent=0.1;pack=svd,rank_k=48,rank_v=48,gain=0;"
             "expand=attention;evict=vta,order=ema,tau=6,layer=2", methods, two)]}
