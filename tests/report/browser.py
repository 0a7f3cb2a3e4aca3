# SPDX-License-Identifier: Apache-2.0
"""A page in headless Chromium, by the DevTools protocol over a pipe: what it logs, what its scripts answer, a screenshot of it.

    with Browser() as b:
        page = b.open('file:///..')     # once it is loaded
        page.evaluate('document.title')
        page.problems                   # errors and warnings of the console, exceptions, requests
"""
import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

NAMES = ('chromium', 'chromium-browser', 'google-chrome')


def find():
    """The browser's path; None: there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    def __init__(self, width=1400, height=1000):
        self.size = (width, height)

    def __enter__(self):
        self.profile = tempfile.mkdtemp(prefix='cytoc-chromium-')
        (there_in, self.to), (self.back, there_out) = os.pipe(), os.pipe()

        def numbers():  # what --remote-debugging-pipe reads from and writes to
            a, b = os.dup(there_in), os.dup(there_out)
            os.dup2(a, 3)
            os.dup2(b, 4)
        self.process = subprocess.Popen(
            [find(), '--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--remote-debugging-pipe', '--no-first-run',
             '--disable-background-networking', '--disable-extensions', '--user-data-dir=' + self.profile, '--window-size=%d,%d' % self.size,
             'about:blank'], preexec_fn=numbers, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True)
        os.close(there_in)
        os.close(there_out)
        self.number, self.buffer, self.events = 0, b'', []
        return self

    def __exit__(self, *exc):
        for pipe in (self.to, self.back):
            os.close(pipe)
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # the group that it leads, begun above
        except ProcessLookupError:
            pass
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)

    def message(self, deadline):
        while b'\0' not in self.buffer:
            if not select.select([self.back], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError('the browser does not answer')
            more = os.read(self.back, 1 << 16)
            if not more:
                raise OSError('the browser has gone')
            self.buffer += more
        text, self.buffer = self.buffer.split(b'\0', 1)
        return json.loads(text)

    def call(self, method, session=None, timeout=60, **params):
        self.number += 1
        request = {'id': self.number, 'method': method, 'params': params, **({'sessionId': session} if session else {})}
        os.write(self.to, json.dumps(request).encode() + b'\0')
        deadline = time.monotonic() + timeout
        while True:
            answer = self.message(deadline)
            if answer.get('id') == self.number:
                if 'error' in answer:
                    raise OSError('%s: %s' % (method, answer['error'].get('message')))
                return answer['result']
            self.events.append(answer)

    def open(self, url, timeout=60):
        target = self.call('Target.createTarget', url='about:blank')['targetId']
        page = Page(self, self.call('Target.attachToTarget', targetId=target, flatten=True)['sessionId'])
        page.load(url, timeout)
        return page


class Page:
    def __init__(self, browser, session):
        self.browser, self.session = browser, session

    def call(self, method, **params):
        return self.browser.call(method, session=self.session, **params)

    def load(self, url, timeout):
        for domain in ('Page', 'Runtime', 'Log', 'Network'):
            self.call(domain + '.enable')
        self.call('Page.navigate', url=url)
        deadline = time.monotonic() + timeout
        while not any(e.get('method') == 'Page.loadEventFired' for e in self.browser.events):
            self.browser.events.append(self.browser.message(deadline))

    @property
    def problems(self):
        found = []
        for e in self.browser.events:
            p = e.get('params', {})
            if e.get('method') == 'Runtime.exceptionThrown':
                details = p['exceptionDetails']
                found.append(details.get('exception', {}).get('description') or details['text'])
            elif e.get('method') == 'Runtime.consoleAPICalled' and p['type'] in ('error', 'warning', 'assert'):
                found.append(' '.join(str(a.get('value', a.get('description'))) for a in p['args']))
            elif e.get('method') == 'Log.entryAdded' and p['entry']['level'] in ('error', 'warning'):
                found.append(p['entry']['text'])
            elif e.get('method') == 'Network.requestWillBeSent' and not p['request']['url'].startswith(('file:', 'data:')):
                found.append('asks for ' + p['request']['url'])
        return found

    def evaluate(self, expression):
        result = self.call('Runtime.evaluate', expression=expression, returnByValue=True, awaitPromise=True, userGesture=True)
        if 'exceptionDetails' in result:
            raise ValueError(result['exceptionDetails'].get('exception', {}).get('description', 'exception'))
        return result['result'].get('value')

    def media(self, **features):
        """prefers_color_scheme='dark'; media='print'."""
        self.call('Emulation.setEmulatedMedia', media=features.pop('media', ''),
                  features=[{'name': k.replace('_', '-'), 'value': v} for k, v in features.items()])

    def screenshot(self, path, height=None):
        extra = {'clip': {'x': 0, 'y': 0, 'width': self.browser.size[0], 'height': height, 'scale': 1}} if height else {}
        data = self.call('Page.captureScreenshot', format='png', captureBeyondViewport=True, **extra)['data']
        with open(path, 'wb') as f:
            f.write(base64.b64decode(data))
