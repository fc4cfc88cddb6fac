/* The chat templates that are known, as checkpoints have them. One is here only when its form
 * (text/chat.c) renders every conversation as the template does: tests/unit/text/test_chat.c holds
 * renderings made by transformers against ours. */
#include "text/chat_known.h"

const fv_chat_known fv_chat_known_templates[] = {
    /* llava-hf/llava-1.5-*: the answer's text is marked for training, which renders as nothing */
    {FV_CHAT_LLAVA_HF, false,
     "{% for message in messages %}{% if message['role'] != 'system' %}"
     "{{ message['role'].upper() + ': '}}{% endif %}"
     "{# Render all images first #}{% for content in message['content'] | selectattr('type', "
     "'equalto', 'image') %}"
     "{{ '<image>\\n' }}{% endfor %}"
     "{# Render all text next #}{% if message['role'] != 'assistant' %}"
     "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
     "{{ content['text'] + ' '}}{% endfor %}{% else %}"
     "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
     "{% generation %}{{ content['text'] + ' '}}{% endgeneration %}{% endfor %}{% endif %}"
     "{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"},
    /* what `fovea synth` writes */
    {FV_CHAT_LLAVA_HF, false,
     "{% for message in messages %}{% if message['role'] != 'system' %}"
     "{{ message['role'].upper() + ': ' }}{% endif %}"
     "{% for part in message['content'] if part['type'] == 'image' %}{{ '<image>\\n' }}"
     "{% endfor %}{% for part in message['content'] if part['type'] == 'text' %}"
     "{{ part['text'] + ' ' }}{% endfor %}{% endfor %}{% if add_generation_prompt %}"
     "{{ 'ASSISTANT:' }}{% endif %}"},
    /* Vicuna 1.1 as LLaVA was trained on it */
    {FV_CHAT_VICUNA, false,
     "{% for message in messages %}{% if message['role'] == 'user' %}{{ 'USER: ' }}"
     "{% elif message['role'] == 'assistant' %}{{ 'ASSISTANT: ' }}{% endif %}"
     "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}"
     "{{ '<image>\\n' }}{% endfor %}"
     "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
     "{{ content['text'] }}{% endfor %}{% if message['role'] == 'assistant' %}"
     "{{ eos_token }}{% else %}{{ ' ' }}{% endif %}{% endfor %}"
     "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"},
    /* checkpoints/nano */
    {FV_CHAT_VICUNA, false,
     "{% for message in messages %}{% if message['role'] == 'system' %}"
     "{{ message['content'] }} {% elif message['role'] == 'user' %}{{ 'USER: ' }}"
     "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
     "{% for c in message['content'] if c['type'] == 'image' %}{{ '<image>\\n' }}"
     "{% endfor %}{% for c in message['content'] if c['type'] == 'text' %}{{ c['text'] }}"
     "{% endfor %}{% endif %}{{ ' ' }}{% else %}{{ 'ASSISTANT: ' }}"
     "{{ message['content'] if message['content'] is string else message['content'][0]['text'] }}"
     "{{ eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}"
     "{{ 'ASSISTANT:' }}{% endif %}"},
    /* ChatML with parts */
    {FV_CHAT_CHATML, false,
     "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}"
     "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}"
     "{{ '<image>\\n' }}{% endfor %}"
     "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
     "{{ content['text'] }}{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"},
    /* ChatML of text models: a turn is one string, so there is no place for an image */
    {FV_CHAT_CHATML, true,
     "{% for message in messages %}"
     "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
     "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"},
    /* Mistral with parts */
    {FV_CHAT_MISTRAL, false,
     "{% for message in messages %}{% if message['role'] == 'system' %}"
     "{{ '<<SYS>>\\n' + message['content'][0]['text'] + '\\n<</SYS>>\\n\\n' }}"
     "{% elif message['role'] == 'user' %}{{ '[INST] ' }}"
     "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}"
     "{{ '<image>\\n' }}{% endfor %}"
     "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
     "{{ content['text'] }}{% endfor %}{{' [/INST]' }}"
     "{% elif message['role'] == 'assistant' %}"
     "{{ ' ' + message['content'][0]['text'] + '</s> '}}{% else %}"
     "{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}"
     "{% endfor %}"},
};
const int32_t fv_n_chat_known = sizeof fv_chat_known_templates / sizeof *fv_chat_known_templates;
