# SPDX-License-Identifier: Apache-2.0
"""examples/kubernetes: by the schemas of Kubernetes itself, which the package kubernetes-validate has; names that are there. No cluster is
asked."""
import copy
import glob
import os
import re

import yaml

import lib

FOLDER = os.path.join(lib.ROOT, 'examples', 'kubernetes')

VERSIONS = '1.25', '1.29', '1.33', '1.37'  # of Kubernetes, whose schemas the files are checked with


def documents():
    found = {}
    for path in sorted(glob.glob(os.path.join(FOLDER, '*.yaml'))):
        with open(path) as f:
            for document in yaml.safe_load_all(f):
                found[document['kind'], document['metadata']['name']] = document
    return found


def wrong(document, version):
    """What Kubernetes's own schema of that version, without fields that it does not know, says of it; None: nothing."""
    import kubernetes_validate
    try:
        kubernetes_validate.validate(document, version, strict=True)
    except kubernetes_validate.ValidationError as e:
        return '%s: %s' % ('.'.join(map(str, e.path)), e.message)
    return None


def test_schema():
    """Every file is what Kubernetes's schemas allow; a field that does not exist, one that is missing and a wrong type are found."""
    all_documents = documents()
    assert len(all_documents) == 4, sorted(all_documents)
    for version in VERSIONS:
        for document in all_documents.values():
            assert not wrong(document, version), (version, document['kind'], wrong(document, version))
    for change, said in ((lambda d: d['spec'].update(replica=1), 'replica'), (lambda d: d['spec'].pop('selector'), 'selector'),
                         (lambda d: d['spec']['template']['spec']['containers'][0]['ports'][0].update(containerPort='8000x'), '8000x'),
                         (lambda d: d['spec']['template']['spec']['containers'][0]['readinessProbe'].update(httpget={}), 'httpget')):
        document = copy.deepcopy(all_documents['Deployment', 'triton-cytoc'])
        change(document)
        assert said in str(wrong(document, VERSIONS[-1])), (said, wrong(document, VERSIONS[-1]))


def test_references():
    """Selectors, ports, volumes and the target of the autoscaler are there; the canary has labels of its own."""
    all_documents = documents()
    service = all_documents['Service', 'triton-cytoc']['spec']
    deployments = [d for (kind, _), d in all_documents.items() if kind == 'Deployment']
    labels = []
    for d in deployments:
        pod = d['spec']['template']
        labels.append(pod['metadata']['labels'])
        assert d['spec']['selector']['matchLabels'].items() <= labels[-1].items()
        assert service['selector'].items() <= labels[-1].items()
        [container] = pod['spec']['containers']
        assert {m['name'] for m in container['volumeMounts']} == {v['name'] for v in pod['spec']['volumes']}
        ports = {p['name'] for p in container['ports']}
        assert {p['targetPort'] for p in service['ports']} <= ports and container['readinessProbe']['httpGet']['port'] in ports
    assert len(deployments) == 2 and labels[0] != labels[1]
    claims = {v['persistentVolumeClaim']['claimName'] for d in deployments for v in d['spec']['template']['spec']['volumes'] if
              'persistentVolumeClaim' in v}
    assert len(claims) == 2, claims
    target = all_documents['HorizontalPodAutoscaler', 'triton-cytoc']['spec']['scaleTargetRef']
    assert (target['kind'], target['name']) in all_documents


def test_dockerfile():
    """What it installs from and to is what the repository has; the server's options are ones that it knows."""
    with open(os.path.join(FOLDER, 'Dockerfile')) as f:
        text = f.read()
    with open(os.path.join(lib.ROOT, 'tools', 'make', 'triton.mk')) as f:
        place = re.search(r'TRITON_PLACE := (\S+)', f.read()).group(1)
    assert '/opt/cytoc/lib/' + place in text
    [built], [needed] = re.findall(r'llvm-(\d+)-dev', text), re.findall(r'libllvm(\d+)', text)
    assert built == needed and int(built) >= 17, (built, needed)
    with open(os.path.join(FOLDER, 'Dockerfile.dockerignore')) as f:
        assert {'build', '.git'} <= set(f.read().split())
    from server import TRITON
    help_text = lib.run([os.path.join(TRITON, 'bin', 'tritonserver'), '--help'])
    options = set(re.findall(r'"(--[a-z-]+)', text)) | {a.split('=')[0] for d in documents().values() if d['kind'] == 'Deployment'
                                                        for a in d['spec']['template']['spec']['containers'][0]['args'] if a[:2] == '--'}
    known = help_text[1] + help_text[2]
    assert len(options) >= 3 and all(option in known for option in options), options
