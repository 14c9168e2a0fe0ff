"""What the build relies on inside mkdocs-gallery, so that another version says what it changed."""

import importlib.metadata
import inspect

from conftest import ROOT

from hooks import plugin


def test_the_plugin_is_the_one_whose_inside_is_known():
    assert importlib.metadata.version("mkdocs-gallery") == "0.10.4", (
        "hooks/plugin.py uses internals of mkdocs-gallery 0.10.4: run the tests below against the new version, "
        "read what they say, then change the version here"
    )


def test_blocks_come_as_kind_text_and_line():
    from mkdocs_gallery.py_source_parser import split_code_and_text_blocks

    script = ROOT / "gallery/1_mixtures/convex_combination.py"
    settings, blocks = split_code_and_text_blocks(script)
    assert settings == {"order": 1}
    assert {kind for kind, _, _ in blocks} == {"text", "code"}
    lines = script.read_text(encoding="utf-8").splitlines()
    for kind, text, line in blocks:
        if kind == "code":
            assert text.strip("\n").splitlines()[0] in lines[line - 1 : line + 1]


def test_the_functions_that_are_called_take_what_they_are_given():
    from mkdocs_gallery import gen_data_model, gen_gallery, gen_single, notebook

    def parameters(function):
        return list(inspect.signature(function).parameters)

    assert parameters(gen_single.parse_and_execute) == ["script", "script_blocks"]
    assert parameters(gen_gallery.parse_config)[:2] == ["mkdocs_gallery_conf", "mkdocs_conf"]
    assert parameters(notebook.jupyter_notebook) == ["script", "script_blocks"]
    assert parameters(notebook.save_notebook) == ["work_notebook", "write_file"]
    assert parameters(gen_data_model.AllInformation.add_gallery) == ["self", "scripts_dir", "generated_dir"]
    for name in ("src_py_file", "ipynb_file", "md_file", "md5_file", "make_dwnld_py_file", "init_before_processing"):
        assert hasattr(gen_data_model.GalleryScript, name), name


def test_printed_text_is_put_into_the_template_that_is_replaced():
    from mkdocs_gallery import gen_single

    assert "CODE_OUTPUT.format(captured_std)" in inspect.getsource(gen_single._get_code_output)


def test_a_script_with_its_mark_is_not_run_again():
    from mkdocs_gallery import gen_single

    source = inspect.getsource(gen_single.generate_file_md)
    assert "if not script.has_changed_wrt_persisted_md5():" in source
    assert source.index("skip_and_return") < source.index("parse_and_execute(")


def test_what_is_silenced_is_still_there():
    from mkdocs_gallery import gen_gallery, gen_single

    assert "tqdm(gallery.scripts" in inspect.getsource(gen_single.generate)
    assert "_import_matplotlib()" in inspect.getsource(gen_gallery._complete_gallery_conf)
    assert "check_spaces_in_filenames(files)" in inspect.getsource(gen_gallery.generate_gallery_md)


def test_the_settings_are_those_of_mkdocs_yml():
    settings = plugin.options(ROOT)
    assert settings["abort_on_example_error"] is True
    assert settings["run_stale_examples"] is False
    assert settings["download_all_examples"] is False


def test_sections_are_found_with_their_first_lines():
    script = ROOT / "gallery/1_mixtures/convex_combination.py"
    found = plugin.sections(script)
    assert found[0] == (1, "A mixture never leaves the convex hull of its values")
    lines = script.read_text(encoding="utf-8").splitlines()
    for line, heading in found[1:]:
        assert heading in "\n".join(lines[line - 1 : line + 2])


def test_a_script_sets_its_own_limits(tmp_path):
    script = tmp_path / "one.py"
    script.write_text('"""# One"""\n# mkdocs_gallery_time_limit = 300\n', encoding="utf-8")
    assert plugin.header(script, "time_limit", 120.0) == 300.0
    assert plugin.header(script, "memory_limit", 16.0) == 16.0
