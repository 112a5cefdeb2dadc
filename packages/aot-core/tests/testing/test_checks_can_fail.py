"""Every check fails for at least one backend that is wrong in what the check is about."""

from __future__ import annotations

import mutants as wrong
import pytest
import torch

from aot_core.testing import all_checks

CHECKS = {check.name: check for check in all_checks()}

CAUGHT_BY = {
    # autograd
    "training": wrong.wrong_gradients,
    "inference": wrong.wrong_values,
    "optimizer_loop": wrong.freezes_parameters,
    "partially_frozen": wrong.wrong_gradients,
    "gradient_through_frozen_model": wrong.detaches,
    "unused_output": wrong.one_for_no_gradient,
    "unused_output_gives_no_gradient": wrong.zero_for_no_gradient,
    "output_without_gradient": wrong.needs_gradient_everywhere,
    "gradient_accumulation": wrong.overwrites_grad,
    "interleaved_backward": wrong.keeps_last_activations,
    "retain_graph": wrong.frees_at_once,
    "second_backward_is_an_error": wrong.no_second_derivative,
    "double_backward": wrong.no_second_derivative,
    "double_backward_is_never_wrong": wrong.second_derivative_is_zero,
    "partial_gradients": wrong.wrong_gradients,
    "tied_weights": wrong.wrong_gradients,
    "sparse_gradients": wrong.dense_gradients,
    "custom_autograd_function": wrong.wrong_gradients,
    "activation_checkpointing": wrong.wrong_gradients,
    "saved_tensor_hooks": wrong.wrong_gradients,
    "tensor_hooks": wrong.writes_grad_itself,
    "accumulate_grad_hooks": wrong.wrong_gradients,
    "retain_grad": wrong.detaches,
    "no_grad_inside": wrong.removes_no_grad,
    "function_transforms": wrong.wrong_values,
    # mutation
    "batch_norm_statistics": wrong.drops_mutations,
    "counter_buffer": wrong.drops_mutations,
    "input_data": wrong.drops_mutations,
    "input_slice": wrong.drops_mutations,
    "input_metadata": wrong.wrong_values,
    "input_data_and_metadata": wrong.drops_mutations,
    "input_in_training": wrong.drops_mutations,
    "input_under_inference_mode": wrong.drops_mutations,
    "parameter_under_no_grad": wrong.drops_mutations,
    "mutation_is_seen_by_autograd": wrong.writes_behind_autograd,
    "buffer_swap": wrong.drops_mutations,
    # aliasing
    "duplicate_inputs": wrong.drops_mutations,
    "duplicate_inputs_in_training": wrong.wrong_gradients,
    "overlapping_inputs": wrong.writes_inputs_back,
    "overlap_changes_between_calls": wrong.writes_inputs_back,
    "input_and_its_view": wrong.writes_inputs_back,
    "output_is_input": wrong.clones_outputs,
    "output_views_input": wrong.clones_outputs,
    "output_views_input_in_training": wrong.clones_outputs,
    "outputs_alias_each_other": wrong.clones_outputs,
    "outputs_alias_in_training": wrong.clones_outputs,
    "view_of_intermediate": wrong.forbids_writes_to_outputs,
    "copies_stay_copies": wrong.removes_noops,
    "outputs_survive_next_call": wrong.reuses_output_memory,
    "gradients_survive_next_call": wrong.reuses_gradient_memory,
    "constants_are_fresh": wrong.folds_constants,
    # layout
    "noncontiguous_input": wrong.reads_in_memory_order,
    "storage_offset": wrong.ignores_storage_offset,
    "expanded_input": wrong.reads_in_memory_order,
    "strides_change_between_calls": wrong.reads_in_memory_order,
    "output_strides": wrong.contiguous_outputs,
    "channels_last": wrong.contiguous_outputs,
    # dtypes
    "float64": wrong.computes_in(torch.float32, torch.float64),
    "float32": wrong.computes_in(torch.bfloat16, torch.float32),
    "float16": wrong.computes_in(torch.float8_e5m2, torch.float16),
    "bfloat16": wrong.computes_in(torch.float8_e4m3fn, torch.bfloat16),
    "complex64": wrong.conjugate_gradients,
    "integers": wrong.integers_through_float,
    "integer_overflow": wrong.saturating_integers,
    "booleans": wrong.bool_as_uint8,
    "special_values": wrong.no_special_values,
    "type_promotion": wrong.everything_in_float32,
    # autocast
    "autocast_training": wrong.without_autocast,
    "autocast_forward_only": wrong.without_autocast,
    "autocast_inside_model": wrong.removes_autocast_regions,
    "autocast_changes_between_calls": wrong.without_autocast,
    "autocast_backward_outside": wrong.backward_under_forward_autocast,
    "autocast_backward_inside": wrong.backward_under_forward_autocast,
    "autocast_around_both": wrong.backward_without_autocast,
    "autocast_backward_changes_between_calls": wrong.backward_under_forward_autocast,
    # shapes
    "changing_batch_size": wrong.truncates_to_first_size,
    "dynamic_batch_size": wrong.truncates_to_first_size,
    "sizes_as_values": wrong.freezes_numbers,
    "dynamic_mutation": wrong.drops_mutations,
    "zero_size": wrong.refuses_empty,
    "zero_dimensional": wrong.at_least_one_dimension,
    "broadcast_changes_between_calls": wrong.wrong_gradients,
    "python_numbers": wrong.freezes_numbers,
    "padding_and_reduction": wrong.wrong_values,
    # structure
    "container_inputs": wrong.reverses_inputs,
    "container_outputs": wrong.reverses_outputs,
    "keyword_arguments": wrong.reverses_inputs,
    "none_and_number_outputs": wrong.reverses_outputs,
    "none_gradient": wrong.reverses_outputs,
    "closure_variables": wrong.freezes_tensors,
    "many_inputs": wrong.reverses_inputs,
    "fullgraph": wrong.wrong_gradients,
    "graph_break": wrong.freezes_tensors,
    "uncompiled_part": wrong.wrong_gradients,
    "cond": wrong.takes_first_branch,
    "cond_in_training": wrong.takes_first_branch,
    "while_loop": wrong.loops_once,
    # randomness
    "dropout_repeats_from_seed": wrong.ignores_seed,
    "dropout_is_fresh": wrong.reuses_random_numbers,
    "dropout_gradient": wrong.recomputes_with_other_numbers,
    "checkpointed_dropout": wrong.recomputes_with_other_numbers,
    "dropout_off_in_eval": wrong.first_graph_for_all,
    "random_tensors": wrong.reuses_random_numbers,
    "generator_untouched": wrong.draws_before_running,
    "generator_advances": wrong.leaves_generator_behind,
    "eager_random_numbers": wrong.draws_before_running,
    "eager_generator_state": wrong.draws_before_running,
    # modules
    "train_eval_switch": wrong.drops_mutations,
    "replaced_submodule": wrong.first_graph_for_all,
    "replaced_parameter": wrong.freezes_parameters,
    "changed_attribute": wrong.first_graph_for_all,
    "changed_dtype": wrong.computes_in(torch.float32, torch.float64),
    "changed_requires_grad": wrong.freezes_parameters,
    "state_dict": wrong.freezes_parameters,
    "deepcopy": wrong.HoldsALock,
    "nested_compilation": wrong.wrong_gradients,
    "compiled_parts": wrong.keeps_last_activations,
    "two_models_alternate": wrong.first_graph_for_all,
    "module_hooks": wrong.wrong_values,
    "backward_module_hooks": wrong.wrong_gradients,
    # runtime
    "inference_mode": wrong.not_inference,
    "grad_mode_changes_between_calls": wrong.not_inference,
    "global_state_untouched": wrong.changes_global_state,
    "error_in_model": wrong.wrong_values,
    "error_in_operation": wrong.swallows_errors,
    "error_in_backward": wrong.breaks_after_error,
    "inputs_released": wrong.keeps_inputs,
    "activations_released": wrong.keeps_outputs,
    "model_released": wrong.keeps_inputs,
    "threads_share_a_model": wrong.mixes_up_threads,
    "threads_share_a_backend": wrong.mixes_up_threads,
    "reentrant_call": wrong.keeps_last_activations,
    "compiles_again_after_reset": wrong.drops_mutations,
}

# These make a backend with state of its own.
FACTORIES = (
    wrong.HoldsALock,
    wrong.breaks_after_error,
    wrong.first_graph_for_all,
    wrong.freezes_parameters,
    wrong.freezes_numbers,
    wrong.ignores_seed,
    wrong.freezes_tensors,
    wrong.keeps_inputs,
    wrong.keeps_last_activations,
    wrong.keeps_outputs,
    wrong.mixes_up_threads,
    wrong.reuses_gradient_memory,
)


def test_every_check_has_a_mutant():
    assert CAUGHT_BY.keys() == CHECKS.keys()


@pytest.mark.parametrize("name", CAUGHT_BY)
def test_check_catches_mutant(name):
    mutant = CAUGHT_BY[name]
    backend = mutant() if mutant in FACTORIES else mutant
    with pytest.raises(Exception) as caught:  # noqa: PT011 - an error from the backend is a failure too
        CHECKS[name].run(backend)
    assert not isinstance(caught.value, (NameError, AttributeError)), "the mutant itself is broken"
