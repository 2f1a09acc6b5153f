import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { describe, expect, test } from 'vitest'
import { helpOf, parseInvocation, UsageError } from '../../../src/cli/usage'

describe('parseInvocation', () => {
  test('reads an import', () => {
    const expected = {
      kind: 'import',
      dataSource: 'o.ts',
      entity: 'Page.url',
      list: 'LIST',
      dryRun: false,
      json: false,
      set: new Map(),
    }
    const args = ['import', '-d', 'o.ts', '--entity', 'Page.url', 'LIST']
    expect(parseInvocation(args)).toEqual(expected)
    expect(parseInvocation(['--dataSource=o.ts', '--entity=Page.url', 'import', 'LIST'])).toEqual(expected)
  })

  test('- is a list', () => {
    const invocation = parseInvocation(['import', '-d', 'o.ts', '--entity', 'Page', '-'])
    expect(invocation).toMatchObject({ list: '-' })
  })

  test('an import writes rows and no file, unless it is asked otherwise', () => {
    const args = ['import', '-d', 'o.ts', '--entity', 'Page', 'LIST']
    expect(parseInvocation(args)).toMatchObject({ dryRun: false, rejected: undefined })
    expect(parseInvocation([...args, '--dry-run', '--rejected', 'keep'])).toMatchObject({
      dryRun: true,
      rejected: 'keep',
    })
  })

  test('an import of records fills properties from columns, and from values', () => {
    const args = ['import', '-d', 'o.ts', '--entity', 'Page', '--format', 'tsv', '--map', 'url=a=b', '--map', 'title=2']
    expect(parseInvocation([...args, '--set', 'site=', '--json', 'LIST'])).toMatchObject({
      records: { format: 'tsv', map: new Map(Object.entries({ url: 'a=b', title: '2' })) },
      set: new Map([['site', '']]),
      json: true,
    })
  })

  test('reads a call of the doctor', () => {
    const expected = { kind: 'doctor', dataSource: 'o.ts', entity: undefined, json: false }
    expect(parseInvocation(['doctor', '-d', 'o.ts'])).toEqual(expected)
    const all = { ...expected, entity: 'Page', json: true }
    expect(parseInvocation(['doctor', '--json', '-d', 'o.ts', '--entity', 'Page'])).toEqual(all)
  })

  test.each([
    ['--help', undefined],
    ['-h', undefined],
    ['import --help', 'import'],
    ['--help explain', 'explain'],
    ['sql -h', 'sql'],
  ])('%s asks for the help of %s', (args, command) => {
    expect(parseInvocation(args.split(' '))).toEqual({ kind: 'help', command })
  })

  test('explain takes one error, and sql nothing', () => {
    expect(parseInvocation(['explain', 'UT002'])).toEqual({ kind: 'explain', error: 'UT002' })
    expect(parseInvocation(['explain'])).toEqual({ kind: 'explain', error: undefined })
    expect(parseInvocation(['sql'])).toEqual({ kind: 'sql' })
  })

  test('--version asks for the version', () => {
    expect(parseInvocation(['--version'])).toEqual({ kind: 'version' })
  })

  test.each([
    ['nothing', []],
    ['another command', ['export']],
    ['no DataSource', ['import', '--entity', 'Page', 'LIST']],
    ['no entity', ['import', '-d', 'o.ts', 'LIST']],
    ['no list', ['import', '-d', 'o.ts', '--entity', 'Page']],
    ['two lists', ['import', '-d', 'o.ts', '--entity', 'Page', 'A', 'B']],
    ['an unknown option', ['import', '--nonsense', '-d', 'o.ts', '--entity', 'Page', 'LIST']],
    ['CSV without a column', ['import', '-d', 'o.ts', '--entity', 'Page', '--format', 'csv', 'LIST']],
    ['a column without a format', ['import', '-d', 'o.ts', '--entity', 'Page', '--map', 'url=url', 'LIST']],
    ['another format', ['import', '-d', 'o.ts', '--entity', 'Page', '--format', 'xml', '--map', 'url=url', 'LIST']],
    ['a map of nothing', ['import', '-d', 'o.ts', '--entity', 'Page', '--format', 'csv', '--map', 'url', 'LIST']],
    ['a property twice', ['import', '-d', 'o.ts', '--entity', 'Page', '--set', 'site=1', '--set', 'site=2', 'LIST']],
    ['an explanation of two errors', ['explain', 'UT001', 'UT002']],
    ['an explanation of an entity', ['explain', 'UT001', '--entity', 'Page']],
    ['SQL of a DataSource', ['sql', '-d', 'o.ts']],
    ['SQL of a schema', ['sql', 'crm']],
    ['a doctor of CSV', ['doctor', '-d', 'o.ts', '--format', 'csv']],
    ['a doctor without DataSource', ['doctor']],
    ['a doctor with a list', ['doctor', '-d', 'o.ts', 'LIST']],
    ['a doctor with a property', ['doctor', '-d', 'o.ts', '--set', 'url=a']],
    ['an option without its value', ['import', 'LIST', '--entity', 'Page', '-d']],
  ])('%s is wrong usage', (_, args) => {
    expect(() => parseInvocation(args)).toThrow(UsageError)
  })

  test.each([
    ['abandon', '--dry-run'],
    ['abandon', '--list', 'keys'],
    ['abandon', '--until', 'fill'],
    ['doctor', '--dry-run'],
    ['import', '--merge', 'oldest', 'LIST'],
  ])('%s refuses %s, which would be ignored', (command, ...args) => {
    expect(() => parseInvocation([command, '-d', 'o.ts', '--entity', 'Page', ...args])).toThrow(
      new RegExp(`^${command} has no option --`),
    )
  })

  test('--merge names the row that it keeps, and needs a list', () => {
    const adopt = ['adopt', '-d', 'a.ts', '--entity', 'Page']
    expect(() => parseInvocation([...adopt, '--merge', 'olderst', '--list', 'a'])).toThrow('--merge is one of: oldest')
    expect(() => parseInvocation([...adopt, '--merge', 'oldest'])).toThrow('--list merge.jsonl')
    expect(parseInvocation([...adopt, '--merge', 'newest', '--list', 'a'])).toMatchObject({
      merge: { keep: 'newest', list: 'a', also: [] },
    })
  })

  test('the pause is a number, or a file that is read again and again', () => {
    const paused = (given: string): unknown => {
      const invocation = parseInvocation(['adopt', '-d', 'o.ts', '--entity', 'Page', '--pause', given])
      if (!('pace' in invocation)) throw new TypeError('Another command.')
      const { pauseMilliseconds } = invocation.pace
      return typeof pauseMilliseconds === 'function' ? [pauseMilliseconds(), pauseMilliseconds] : pauseMilliseconds
    }
    expect(paused('50')).toBe(50)
    expect(() => paused('50ms')).toThrow('--pause is a whole number of milliseconds')
    const folder = mkdtempSync(path.join(tmpdir(), 'pause-'))
    const file = path.join(folder, 'pause.txt')
    try {
      expect(() => paused(file)).toThrow('cannot be read')
      writeFileSync(file, 'soon')
      expect(() => paused(file)).toThrow('holds a whole number of milliseconds')
      writeFileSync(file, '20\n')
      const [first, again] = paused(file) as [number, () => number]
      expect(first).toBe(20)
      writeFileSync(file, '300')
      expect(again()).toBe(300)
      // Half of a write, or no file for a moment, leaves the pace as it is.
      writeFileSync(file, '')
      expect(again()).toBe(300)
      rmSync(file)
      expect(again()).toBe(300)
    } finally {
      rmSync(folder, { recursive: true })
    }
  })

  test.each([
    ['--also', 'visit.page'],
    ['--list', 'merge.jsonl'],
  ])('%s needs --merge', (...args) => {
    const adopt = ['adopt', '-d', 'o.ts', '--entity', 'Page', ...args]
    expect(() => parseInvocation(adopt)).toThrow('--also and --list are for --merge')
  })

  test.each([
    [['imprt'], 'Unknown command "imprt". Did you mean "import"?'],
    [['doctor', '--jsn'], 'Unknown option --jsn. Did you mean "--json"?'],
    [['sql', '--nonsense'], /^Unknown option --nonsense\.$/],
    [['adopt', '-d', 'o.ts', '--entity', 'Page', '--until', 'idnex'], 'Did you mean "index"?'],
  ])('%j names what was probably meant', (args, message) => {
    expect(() => parseInvocation(args)).toThrow(message)
  })

  const COMMANDS = ['import', 'adopt', 'abandon', 'doctor', 'recount', 'explain', 'sql'] as const

  test.each([undefined, ...COMMANDS])('the help of %s fits a terminal', (command) => {
    for (const line of helpOf(command).split('\n')) expect(line.length).toBeLessThanOrEqual(90)
  })

  test.each(COMMANDS)('the help of %s has an example that is right usage, and a page', (command) => {
    const [, example = ''] = /^Example: npx typeorm-unique-text (.+)$/mu.exec(helpOf(command)) ?? []
    expect(parseInvocation(example.split(' '))).toMatchObject({ kind: command })
    const [, page = ''] = /^Page: (.+)$/mu.exec(helpOf(command)) ?? []
    expect(existsSync(path.join(import.meta.dirname, '../../..', page))).toBe(true)
  })

  test('the helps have 20 options in all', () => {
    const options = [undefined, ...COMMANDS].flatMap((command) => [
      ...helpOf(command).matchAll(/^ +(?:-\w, )?(--[\w-]+)/gmu),
    ])
    expect(new Set(options.map(([, name]) => name)).size).toBe(20)
  })
})
