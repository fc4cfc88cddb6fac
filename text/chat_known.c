/* Templates for LLaVA checkpoints that have none of their own. */
#include "text/chat_known.h"

#include <stddef.h>

#define IMAGES                                                                                     \
    "{% for part in message['content'] if part['type'] == 'image' %}{{ '<image>\\n' }}{% endfor "  \
    "%}"
#define TEXT(what)                                                                                 \
    "{% for part in message['content'] if part['type'] == 'text' %}{{ " what " }}{% endfor %}"
/* Begins the loop over messages; refuses roles that the model was not trained on. */
#define EACH                                                                                       \
    "{% for message in messages %}"                                                                \
    "{% set role = 'system' if message['role'] == 'developer' else message['role'] %}"             \
    "{% if role not in ['system', 'user', 'assistant'] %}"                                         \
    "{{ raise_exception('there are system, user and assistant turns, not ' ~ role) }}{% endif %}"
#define OPEN(text) "{% endfor %}{{ '" text "' if add_generation_prompt }}"

/* InternVL's original layout: the template's own system message unless the first turn is one. An
 * image is where it stands in its turn. */
#define INTERNVL(begin, message, after, end)                                                       \
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}{{ '" begin   \
    "system" after message end "' }}{% endif %}{{ '" begin "' + message['role'] + '" after "' }}"  \
    "{% for part in message['content'] %}"                                                         \
    "{{ '<IMG_CONTEXT>\\n' if part['type'] == 'image' else part['text'] }}"                        \
    "{% endfor %}{{ '" end "' }}" OPEN(begin "assistant" after)
#define INTERNVL_2                                                                                                     \
    "你是由上海人工智能实验室联合商汤科技开发的书生多模态大模型，英文名叫InternVL, " \
    "是一个有用无害的人工智能助手。"
#define INTERNVL_2_5                                                                                                                        \
    "你是书生·万象，英文名是InternVL，是由上海人工智能实验室、清华大学及多家合作单位联合开发的多" \
    "模态大语言"                                                                                                                       \
    "模型。"

const fv_chat_known fv_chat_known_templates[] = {
    /* Vicuna 1.1, as LLaVA was trained on it */
    {"vicuna", "llama",
     EACH "{{ {'system': '', 'user': 'USER: ', 'assistant': 'ASSISTANT: '}[role] }}" IMAGES TEXT(
         "part['text']") "{{ '</s>' if role == 'assistant' else ' ' }}" OPEN("ASSISTANT:")},
    /* llava-hf's own */
    {"llava", NULL,
     "{% for message in messages %}"
     "{{ message['role'].upper() + ': ' if message['role'] != 'system' }}" IMAGES TEXT(
         "part['text'] + ' '") OPEN("ASSISTANT:")},
    {"chatml", "qwen2",
     "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}" IMAGES TEXT(
         "part['text']") "{{ '<|im_end|>\\n' }}" OPEN("<|im_start|>assistant\\n")},
    {"mistral", "mistral",
     EACH "{{ {'system': '<<SYS>>\\n', 'user': '[INST] ', 'assistant': ' '}[role] }}" IMAGES TEXT(
         "part['text']") "{{ {'system': '\\n<</SYS>>\\n\\n', 'user': ' [/INST]', "
                         "'assistant': '</s> '}[role] }}{% endfor %}"},
    {"internvl2_5", NULL, INTERNVL("<|im_start|>", INTERNVL_2_5, "\\n", "<|im_end|>\\n")},
    {"Hermes-2", NULL, INTERNVL("<|im_start|>", INTERNVL_2, "\\n", "<|im_end|>")},
    {"phi3-chat", NULL, INTERNVL("<|", INTERNVL_2, "|>\\n", "<|end|>")},
    {"none", NULL, "{% for message in messages %}" IMAGES TEXT("part['text']") "{% endfor %}"},
};
const int32_t fv_n_chat_known = sizeof fv_chat_known_templates / sizeof *fv_chat_known_templates;
