# SPDX-License-Identifier: Apache-2.0
"""examples/kubernetes: fields that Kubernetes knows, of the types it wants, names that are there. No cluster is asked."""
import glob
import os
import re

import yaml

import lib

FOLDER = os.path.join(lib.ROOT, 'examples', 'kubernetes')

# The part of Kubernetes's schema that the files use: {field: type}, a type being a Python type, (list, type), (dict, type) for maps of any
# keys, or another such table. A trailing * marks fields that must be there.
TEXTS = (dict, str)
META = {'name*': str, 'labels': TEXTS, 'annotations': TEXTS}
PROBE = {'httpGet*': {'path*': str, 'port*': (str, int)}, 'periodSeconds': int, 'failureThreshold': int}
CONTAINER = {'name*': str, 'image*': str, 'args': (list, str), 'command': (list, str), 'env': (list, {'name*': str, 'value*': str}),
             'ports': (list, {'name': str, 'containerPort*': int}), 'startupProbe': PROBE, 'readinessProbe*': PROBE, 'livenessProbe*': PROBE,
             'resources*': {'requests*': TEXTS, 'limits*': TEXTS},
             'volumeMounts': (list, {'name*': str, 'mountPath*': str, 'readOnly': bool})}
VOLUME = {'name*': str, 'persistentVolumeClaim': {'claimName*': str, 'readOnly': bool}, 'emptyDir': {'medium': str, 'sizeLimit': str}}
POD = {'containers*': (list, CONTAINER), 'volumes': (list, VOLUME), 'terminationGracePeriodSeconds': int,
       'securityContext': {'runAsNonRoot': bool, 'runAsUser': int, 'fsGroup': int}}
WINDOW = {'stabilizationWindowSeconds*': int}
SCHEMAS = {
    ('apps/v1', 'Deployment'): {'replicas': int, 'selector*': {'matchLabels*': TEXTS}, 'strategy': {'rollingUpdate*': (dict, int)},
                                'template*': {'metadata*': {'labels*': TEXTS, 'annotations': TEXTS}, 'spec*': POD}},
    ('v1', 'Service'): {'selector*': TEXTS, 'ports*': (list, {'name*': str, 'port*': int, 'targetPort': (str, int)})},
    ('autoscaling/v2', 'HorizontalPodAutoscaler'): {
        'scaleTargetRef*': {'apiVersion*': str, 'kind*': str, 'name*': str}, 'minReplicas': int, 'maxReplicas*': int,
        'metrics*': (list, {'type*': str, 'pods': {'metric*': {'name*': str}, 'target*': {'type*': str, 'averageValue*': str}}}),
        'behavior': {'scaleUp': WINDOW, 'scaleDown': WINDOW}},
}


def check(value, schema, where):
    if isinstance(schema, dict):
        assert isinstance(value, dict), '%s: expected fields, found %r' % (where, value)
        known = {name.rstrip('*'): kind for name, kind in schema.items()}
        assert not set(value) - set(known), '%s: there is no field %s' % (where, sorted(set(value) - set(known)))
        missing = [name for name in schema if name.endswith('*') and name[:-1] not in value]
        assert not missing, '%s: %s is missing' % (where, missing)
        for name, part in value.items():
            check(part, known[name], where + '.' + name)
    elif isinstance(schema, tuple) and schema[0] in (list, dict):
        assert isinstance(value, schema[0]), '%s: expected a %s' % (where, schema[0].__name__)
        for k, part in value.items() if schema[0] is dict else enumerate(value):
            check(part, schema[1], '%s[%s]' % (where, k))
    else:
        assert isinstance(value, schema) and not (isinstance(value, bool) and schema is int), '%s: %r is no %s' % (where, value, schema)


def documents():
    found = {}
    for path in sorted(glob.glob(os.path.join(FOLDER, '*.yaml'))):
        with open(path) as f:
            for document in yaml.safe_load_all(f):
                found[document['kind'], document['metadata']['name']] = document
    return found


def test_schema():
    """Every field is one that Kubernetes has; a field that it does not have is found."""
    all_documents = documents()
    assert len(all_documents) == 4, sorted(all_documents)
    for document in all_documents.values():
        schema = {'apiVersion*': str, 'kind*': str, 'metadata*': META, 'spec*': SCHEMAS[document['apiVersion'], document['kind']]}
        check(document, schema, document['kind'])
    try:
        check({'replica': 1}, {'replicas': int}, 'spec')
    except AssertionError:
        return
    raise AssertionError('a wrong field is not found')


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
    from server import TRITON
    help_text = lib.run([os.path.join(TRITON, 'bin', 'tritonserver'), '--help'])
    options = set(re.findall(r'"(--[a-z-]+)', text)) | {a.split('=')[0] for d in documents().values() if d['kind'] == 'Deployment'
                                                        for a in d['spec']['template']['spec']['containers'][0]['args'] if a[:2] == '--'}
    known = help_text[1] + help_text[2]
    assert len(options) >= 3 and all(option in known for option in options), options
