"""expand=attention: packed rows at the rank that their importance asks for; rendered in svd.py."""
from network import Shape, case
from svd import methods


def render():
    narrow, two = Shape(n_layer=3, n_head=4, n_kv=1), "t5 v35 t3 v35 t6"
    full = "pack=svd,rank_k=48,rank_v=48,gain=0"
    return {"networks": [
        case(full + ";expand=attention", methods, two, answer=5),
        case(full + ",block=5;expand=attention,full=0.3,rank=0.4,alpha=0.6,parts=both", methods,
             two, answer=5),
        case("pack=svd,rank_k=20,rank_v=16,gain=0,block=16;"
             "expand=attention,full=0.1,rank=0.01,alpha=0",
             methods, shape=narrow, answer=5)]}
