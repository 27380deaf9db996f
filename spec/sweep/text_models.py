"""Compares lupine.models with the package transformers, by random weights.

    python spec/sweep/text_models.py

needs torch, transformers and safetensors, and lupine built (LUPINE, default
build/lupine). Each model is saved as the package saves it (config.json and
model.safetensors); spec/sweep/text_models.lua loads the folder and compares keys,
results, losses, gradients, and what generate() gives.
"""

import os
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import save_file
from transformers import BertConfig, GPT2Config
import transformers

TINY_BERT = dict(vocab_size=97, hidden_size=24, num_hidden_layers=3, num_attention_heads=4,
                 intermediate_size=40, max_position_embeddings=40, hidden_dropout_prob=0.0,
                 attention_probs_dropout_prob=0.0)
TINY_GPT2 = dict(vocab_size=89, n_positions=64, n_embd=24, n_layer=3, n_head=4, resid_pdrop=0.0,
                 embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=2)

CASES = [
    ("BertModel", TINY_BERT),
    ("BertModel", dict(TINY_BERT, hidden_act="gelu_new", layer_norm_eps=1e-5)),
    ("BertForMaskedLM", TINY_BERT),
    ("BertForPreTraining", TINY_BERT),
    ("BertForSequenceClassification", dict(TINY_BERT, num_labels=3)),
    ("BertForSequenceClassification", dict(TINY_BERT, num_labels=1)),
    ("BertForSequenceClassification", dict(TINY_BERT, num_labels=4, problem_type="multi_label_classification")),
    ("BertForQuestionAnswering", TINY_BERT),
    ("GPT2Model", TINY_GPT2),
    ("GPT2LMHeadModel", TINY_GPT2),
    ("GPT2LMHeadModel", dict(TINY_GPT2, n_inner=50, activation_function="relu")),
    ("GPT2LMHeadModel", dict(TINY_GPT2, scale_attn_by_inverse_layer_idx=True)),
    ("GPT2LMHeadModel", dict(TINY_GPT2, tie_word_embeddings=False)),
    ("GPT2LMHeadModel", dict(TINY_GPT2, eos_token_id=None, pad_token_id=0)),
]


def labels_of(name, config, b, n, g):
    draw = lambda high, *shape: torch.randint(0, high, shape, generator=g)
    if name == "BertForMaskedLM":
        labels = draw(97, b, n)
        labels[:, ::2] = -100
        return {"labels": labels}
    if name == "BertForPreTraining":
        return {"labels": draw(97, b, n), "next_sentence_label": draw(2, b)}
    if name == "BertForSequenceClassification":
        if config["num_labels"] == 1:
            return {"labels": torch.randn(b, generator=g)}
        if "problem_type" in config:
            return {"labels": draw(2, b, config["num_labels"]).float()}
        return {"labels": draw(config["num_labels"], b)}
    if name == "BertForQuestionAnswering":
        return {"start_positions": draw(n, b), "end_positions": draw(2 * n, b)}
    if name == "GPT2LMHeadModel":
        return {"labels": draw(89, b, n)}
    return {}


def generations(model, ids, mask, facts):
    runs = {
        "plain": dict(max_new_tokens=30),
        "length": dict(max_length=25),
        "penalty": dict(max_new_tokens=30, repetition_penalty=1.3),
        "end": dict(max_new_tokens=30, eos_token_id=[5, 7, 11, 13], pad_token_id=3),
        "filled": dict(max_new_tokens=20, attention_mask=mask),
    }
    for name, kwargs in runs.items():
        kwargs.setdefault("attention_mask", torch.ones_like(ids))
        out = model.generate(ids, do_sample=False, **kwargs)
        facts["generate." + name] = out


def check(name, config, folder):
    torch.manual_seed(0)
    bert = name.startswith("Bert")
    model = getattr(transformers, name)((BertConfig if bert else GPT2Config)(**config)).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.15)
    model.save_pretrained(folder)
    g = torch.Generator().manual_seed(5)
    b, n = 3, 11
    ids = torch.randint(3, 89, (b, n), generator=g)
    mask = torch.ones(b, n, dtype=torch.int64)
    mask[1, 7:] = 0
    if bert:
        more = {"attention_mask": mask, "token_type_ids": torch.randint(0, 2, (b, n), generator=g)}
    else:
        more = {"attention_mask": mask, "position_ids": torch.arange(n).flip(0).expand(b, n)}
    labels = labels_of(name, config, b, n, g)
    out = model(ids, **more, **labels)
    facts = {"in.input_ids": ids}
    facts.update({"in." + k: v for k, v in {**more, **labels}.items()})
    for key, value in out.items():
        if isinstance(value, torch.Tensor):
            facts["out." + key] = value.detach()
    if "loss" in out:
        out.loss.backward()
        for key, p in model.named_parameters():
            if p.grad is not None:
                facts["grad." + key] = p.grad
    if name == "GPT2LMHeadModel":
        generations(model, ids, mask.flip(1), facts)
    facts["keys." + "\n".join(model.state_dict())] = torch.zeros(1)
    save_file({k: v.contiguous() for k, v in facts.items()}, os.path.join(folder, "facts.safetensors"))
    lupine = os.environ.get("LUPINE", "build/lupine")
    return subprocess.run([lupine, "spec/sweep/text_models.lua", folder, name]).returncode == 0


def main():
    failed = 0
    for name, config in CASES:
        with tempfile.TemporaryDirectory() as folder:
            failed += not check(name, config, folder)
    print("%d failed" % failed)
    return 1 if failed else 0


sys.exit(main())
