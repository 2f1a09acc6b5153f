import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, test } from 'vitest'
import { CALL_RULES } from '../../src/calls/call-options'

const ROOT = path.resolve(import.meta.dirname, '../..')

/** Names of tests in a table of maintainers/typeorm-calls.md: what stands in backticks in a column that is headed `test`. */
async function namedTests(): Promise<string[]> {
  const lines = (await readFile(path.join(ROOT, 'maintainers/typeorm-calls.md'), 'utf8')).split('\n')
  const names: string[] = []
  let last = false
  for (const line of lines) {
    if (!line.startsWith('|')) last = false
    else if (/\| *tests? *\|$/.test(line)) last = true
    else if (last) names.push(...[...(cellsOf(line).at(-1) ?? '').matchAll(/`([^`]+)`/g)].map(([, name = '']) => name))
  }
  return names
}

const cellsOf = (line: string): string[] => line.split('|').slice(1, -1)

async function sourcesOf(folder: string): Promise<string> {
  const files = (await readdir(folder, { recursive: true })).filter((file) => file.endsWith('.test.ts'))
  const sources = await Promise.all(files.map((file) => readFile(path.join(folder, file), 'utf8')))
  return sources.join('\n')
}

test('every test that maintainers/typeorm-calls.md names is there', async () => {
  const [names, sources] = [await namedTests(), await sourcesOf(path.join(ROOT, 'test/db'))]
  const missing = names.filter((name) => !['test', 'it'].some((call) => sources.includes(`${call}('${name}'`)))
  expect(names.length).toBeGreaterThan(15)
  expect(missing).toEqual([])
})

const PAGES = [
  'README.md',
  ...(await readdir(path.join(ROOT, 'docs'))).map((name) => `docs/${name}`),
  'site/try.md',
].filter((name) => name.endsWith('.md'))

test.each(PAGES)(
  '%s: code has at most 76 columns, a label is in the text before, and tables are whole',
  async (name) => {
    const page = await readFile(path.join(ROOT, name), 'utf8')
    const blocks = [
      ...page.matchAll(/^(?<before>[^\n]*)\n\n(?:<!--[^\n]*\n\n)?```\w*(?: \[(?<label>\S+)\])?\n(?<code>.*?)^```$/gmsu),
    ]
    for (const { groups: { before = '', label = '', code = '' } = {} } of blocks) {
      expect(code.split('\n').filter((line) => line.length > 76)).toEqual([])
      expect(before).toContain(label)
    }
    expect(page).not.toContain('<!-- file:')
    const columns = (line = ''): number => line.replaceAll('\\|', '').split('|').length
    // GitHub shows a table as text if its second line has another number of columns.
    for (const [, head, rule] of page.matchAll(/\n\n(\|.*)\n(\|[ :|-]+\|)\n/gu))
      expect(columns(rule)).toBe(columns(head))
  },
)

/** Anchors of a page, as GitHub makes them of its headings. */
const anchorsOf = (text: string): Set<string> =>
  new Set(
    [...text.matchAll(/^#+ (.+)$/gmu)].map(([, heading = '']) =>
      heading
        .toLowerCase()
        .replaceAll(/[^\p{Letter}\p{Number} _-]/gu, '')
        .replaceAll(' ', '-'),
    ),
  )

test('every link between pages leads to a page and to a heading of it, as do those to our own pages on GitHub', async () => {
  const folders = await Promise.all(
    ['.', 'docs', 'maintainers', 'site'].map(async (folder) =>
      (await readdir(path.join(ROOT, folder))).map((name) => path.posix.join(folder, name)),
    ),
  )
  const names = folders.flat().filter((name) => name.endsWith('.md'))
  const pages = new Map(
    await Promise.all(names.map(async (name) => [name, await readFile(path.join(ROOT, name), 'utf8')] as const)),
  )
  const dead: string[] = []
  for (const [name, text] of pages) {
    for (const [, link = ''] of text.matchAll(
      /\]\(((?!https?:)[^)]*\.md(?:#[^)]*)?|#[^)]*|https:[^)]*\/blob\/main\/[^)]*\.md[^)]*)\)/gu,
    )) {
      const [, ours] = link.split('/blob/main/')
      const [file = '', anchor] = (ours ?? link).split('#')
      const page = file === '' ? name : ours === undefined ? path.posix.join(path.posix.dirname(name), file) : file
      const found = pages.get(page)
      if (found === undefined || (anchor !== undefined && !anchorsOf(found).has(anchor))) dead.push(`${name}: ${link}`)
    }
  }
  expect(pages.size).toBeGreaterThan(20)
  expect(dead).toEqual([])
})

test('docs/options.md has every option of a call, beside the calls that take it', async () => {
  const lines = (await readFile(path.join(ROOT, 'docs/options.md'), 'utf8')).split('\n')
  const documented = (operation: string): string[] =>
    lines.flatMap((line) => {
      const [names = '', of = ''] = cellsOf(line)
      const takes = [...of.matchAll(/`(\w+)`/g)].some(([, name]) => name === operation)
      return takes || of.split(',').some((group) => GROUPS[group.trim()]?.includes(operation))
        ? [...names.matchAll(/`(\w+)`/g)].map(([, name = '']) => name)
        : []
    })
  for (const [operation, rules] of OPERATIONS) {
    expect({ operation, options: new Set(documented(operation)) }).toEqual({
      operation,
      options: new Set(Object.keys(rules)),
    })
  }
})

/** `hashOf` is no operation on rows, and takes `by` alone. */
const OPERATIONS = Object.entries(CALL_RULES).filter(([name]) => name !== 'hashOf')
const ALL = OPERATIONS.map(([name]) => name)

const LOOK_UPS = ['findOneByText', 'existsByText', 'countByText']

/** As the page says beneath the table. */
const GROUPS: Readonly<Record<string, readonly string[]>> = {
  'all in this table': ALL,
  'all that return entities': ALL.filter((name) => !/^(?:exists|count|delete)ByText$/.test(name)),
  'look-ups': LOOK_UPS,
  'find-or-create': ALL.filter((name) => name.startsWith('findOrCreate')),
}
