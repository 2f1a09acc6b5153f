// Reads the built site in Debian's Chromium as its readers do, without a network.
import assert from 'node:assert/strict'
import { readdir, readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import path from 'node:path'
import { after, before, beforeEach, test } from 'node:test'
import { chromium } from 'playwright-core'

const DIST = path.join(import.meta.dirname, 'dist')
const SHOTS = path.join(import.meta.dirname, 'screenshots')
const TYPES = {
  css: 'text/css',
  html: 'text/html',
  js: 'text/javascript',
  svg: 'image/svg+xml',
  wasm: 'application/wasm',
}
const PHONE = { width: 390, height: 844 }

let server
let origin
let browser
let tab
/** What must stay empty: messages of the console, and requests to another host. */
let wrong

async function serve(request, response) {
  const name = decodeURIComponent(new URL(request.url, 'http://localhost').pathname)
  const file = path.join(DIST, name.endsWith('/') ? `${name}index.html` : name)
  const body = await readFile(file).catch(() => undefined)
  response.writeHead(body ? 200 : 404, {
    'content-type': TYPES[path.extname(file).slice(1)] ?? 'application/octet-stream',
  })
  response.end(body)
}

before(async () => {
  server = createServer((request, response) => void serve(request, response))
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  origin = `http://127.0.0.1:${server.address().port}`
  browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] })
})

after(async () => {
  await browser?.close()
  server?.close()
})

beforeEach(async () => {
  wrong = []
  await tab?.context().close()
  const context = await browser.newContext()
  await context.route(
    (url) => url.origin !== origin,
    async (route) => {
      wrong.push(route.request().url())
      await route.abort()
    },
  )
  tab = await context.newPage()
  tab.on('console', (message) => ['error', 'warning'].includes(message.type()) && wrong.push(message.text()))
  tab.on('pageerror', (error) => wrong.push(String(error)))
  tab.on('response', (response) => response.status() >= 400 && wrong.push(`${response.status()} ${response.url()}`))
})

const open = async (page, scheme = 'light') => {
  await tab.emulateMedia({ colorScheme: scheme })
  await tab.goto(`${origin}${page}`, { waitUntil: 'networkidle' })
}
const shot = async (name) => await tab.screenshot({ path: path.join(SHOTS, `${name}.png`) })

async function pages() {
  const files = await readdir(DIST, { recursive: true })
  return files.filter((name) => name.endsWith('.html') && !name.startsWith('site/api/') && name !== '404.html')
}

void test('two texts of one MD5 are stored, one is not stored twice, and the next one is promoted', async () => {
  await open('/site/try.html')
  await tab.getByRole('button', { name: 'Start Postgres' }).click()
  await tab.getByRole('button', { name: 'Insert a text' }).click({ timeout: 60_000 })
  // All is loaded: the rest needs no server.
  await tab.context().setOffline(true)
  await tab.getByRole('button', { name: 'Insert another text' }).click()
  await tab.getByRole('row').nth(2).waitFor()
  const rows = async () =>
    (await tab.getByRole('row').all())
      .slice(1)
      .map(async (row) => (await row.getByRole('cell').allTextContents()).slice(2, 4))
  const [one, other] = await Promise.all(await rows())
  assert.equal(one[0], other[0])
  assert.deepEqual([one[1], other[1]], ['0', '1'])

  await tab.getByRole('button', { name: 'Insert another text' }).click()
  await tab.getByRole('status').filter({ hasText: '23505' }).waitFor()
  assert.equal(await tab.getByRole('row').count(), 3)
  await shot('try')

  await tab.getByRole('button', { name: 'Delete' }).first().click()
  await tab.getByRole('row').nth(2).waitFor({ state: 'detached' })
  assert.deepEqual(await Promise.all(await rows()), [[other[0], '0']])

  await tab.getByLabel('A text of your own').fill(`it's ${'x'.repeat(5000)}`)
  await tab.getByRole('button', { name: 'Insert', exact: true }).click()
  await tab.getByRole('row').nth(2).waitFor()
  assert.deepEqual(wrong, [])
})

void test('a search finds a name and leads to its page, without a network', async () => {
  await open('/')
  await tab
    .getByRole('button', { name: /search/i })
    .first()
    .click()
  await tab.getByRole('searchbox').fill('firstFreeText')
  const result = tab.locator('.results a').first()
  await result.waitFor()
  await shot('search')
  await result.click()
  await tab.waitForURL(/\/docs\//)
  assert.deepEqual(wrong, [])
})

void test('on a phone no page is wider than the screen, and the menu leads to all of them', async () => {
  await tab.setViewportSize(PHONE)
  const wide = []
  for (const page of await pages()) {
    await tab.goto(`${origin}/${page}`)
    const width = await tab.evaluate(() => document.scrollingElement.scrollWidth)
    if (width > PHONE.width) wide.push(`${page}: ${width}`)
  }
  assert.deepEqual(wide, [])
  await open('/')
  await tab.getByRole('button', { name: 'Menu' }).click()
  await shot('phone')
  await tab.getByRole('link', { name: 'Numbers without gaps' }).click()
  await tab.waitForURL(/numbers/)
  await tab.getByRole('heading', { level: 1, name: /number/i }).waitFor()
  assert.deepEqual(wrong, [])
})

void test('dark mode changes the colours, those of the pictures too', async () => {
  for (const scheme of ['light', 'dark']) {
    await open('/docs/how-it-works.html', scheme)
    const pictures = await tab
      .locator('main img')
      .evaluateAll((all) => all.map((one) => [one.complete && one.naturalWidth > 0, one.alt !== '']))
    assert.deepEqual(pictures, [
      [true, true],
      [true, true],
      [true, true],
    ])
    await shot(scheme)
  }
  const dark = await tab.evaluate(() => getComputedStyle(document.body).backgroundColor)
  await tab.emulateMedia({ colorScheme: 'light' })
  await tab.waitForFunction(() => !document.documentElement.classList.contains('dark'))
  assert.notEqual(await tab.evaluate(() => getComputedStyle(document.body).backgroundColor), dark)
  assert.deepEqual(wrong, [])
})
