import { type ChildProcess, type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Column, DataSource, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { afterAll, describe, expect, test } from 'vitest'
import { DeclarationError, SchemaDriftError, UniqueText } from '../../../src'
import { normalizer } from '../../../src/text'
import { findImportTarget, importLines, type ImportOptions } from '../../../src/cli/import'
import type { Line } from '../../../src/cli/list'
import type { Entry } from '../../../src/cli/records'
import type { ImportReport } from '../../../src/cli/report'
import { UsageError } from '../../../src/cli/usage'
import { Url } from '../../../src/url'
import { untilBlocked } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { oneHash } from '../../support/digests'
import { column, entity, text, toOne } from '../../support/entity'
import { Page } from '../../support/normalized-page'

const db = useDatabase()

const Crowded = entity('Crowded', { text: text({ digest: oneHash, maxChainLength: 3 }) }, { name: 'crowd' })
const Note = entity('Note', {
  title: text({ scope: ['tenant'] }),
  body: text(),
  tenant: column('integer', { default: 1 }),
})
const Line = entity('Line', { text: text({ scope: ['note'] }), note: toOne(() => Note, { nullable: false }) })

@Entity()
@UniqueText({ as: 'name', columns: ['first', 'last'] })
class Person {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @Column({ type: 'text' }) first!: string
  @Column({ type: 'text' }) last!: string
}

const SLOW_MILLISECONDS = 10
let slowTexts = 0
const slow = normalizer('slow', 1, (text) => {
  slowTexts += 1
  const started = performance.now()
  while (performance.now() - started < SLOW_MILLISECONDS);
  return text
})

const Slow = entity('Slow', { text: text({ normalize: slow }) })
const Plain = entity('Plain', {})

const ENTITIES = [Page, Crowded, Note, Line, Person, Slow, Plain, Url]
const dataSource = db.useDataSource(ENTITIES, { emptied: false })

async function* chunksOf(lines: readonly Entry[], size = 700): AsyncGenerator<readonly Entry[]> {
  for (let start = 0; start < lines.length; start += size) yield lines.slice(start, start + size)
}

async function run(entity: string, lines: readonly Entry[], options?: ImportOptions): Promise<ImportReport> {
  return await importLines(dataSource, findImportTarget(dataSource, { entity }), chunksOf(lines), options)
}

const numbered = (count: number, make: (index: number) => string): string[] =>
  Array.from({ length: count }, (_, index) => make(index))

describe('importLines', () => {
  test('fills a property, counts and skips what is refused, and finds everything when it runs again', async () => {
    const lines: Line[] = numbered(7_500, (index) => `http://a.example/${index}`)
    lines.splice(10, 0, 'HTTP://A.EXAMPLE:80/./1', '')
    lines.splice(1_200, 0, 'ftp://secret.example/', { reason: 'it is not valid UTF-8' })
    const progress: number[] = []
    const first = await run('Page', lines, { onProgress: (counts) => progress.push(counts.lines) })
    expect(first).toMatchObject({ lines: 7_504, created: 7_500, found: 1, rejected: 2, blank: 1, collisions: 0 })
    expect(first.end).toEqual({ kind: 'done' })
    expect(first.rejections).toEqual([
      { line: 1_201, reason: 'it is not an http or https URL' },
      { line: 1_202, reason: 'it is not valid UTF-8' },
    ])
    expect(progress).toEqual([3_000, 6_000, 7_504])
    const second = await run('page', lines)
    expect(second).toMatchObject({ lines: 7_504, created: 0, found: 7_501, rejected: 2, blank: 1 })
    expect(await dataSource.manager.count(Page)).toBe(7_500)
  })

  test('fills the columns of a declaration with "parse", colliding texts included', async () => {
    const [left, right] = ['l', 'p'].map(
      (letter) =>
        `/P.cPKDAA;hW9r,-Y&rjV${letter}+H2SnMy(nLMupUX9Daz1gJ)A+3KtBpo-'XsVrxlE;idQsKUNFuTSDZP5VaoYs9Puslm1y4EfqwZiOSvhbcFGinVPEvnFldVnGIq39LCmaV`,
    )
    const lines = [
      'https://b.example/a?b#c',
      `https://b.example${left}`,
      `https://b.example${right}`,
      'HTTPS://B.example:443/a?b#c',
      'https://user:secret@b.example/',
      'https://b.example:0/',
      'secret',
      `https://b.example/${'x'.repeat(5_000)}`,
    ]
    const first = await run('Url', lines)
    expect(first).toMatchObject({ created: 4, found: 1, rejected: 3, collisions: 1 })
    expect(first.rejections.map(({ reason }) => reason)).toEqual([
      'it has user information',
      'its port is 0',
      'it is not an http or https URL',
    ])
    expect(await run('urls', lines)).toMatchObject({ created: 0, found: 5, rejected: 3, collisions: 1 })
    expect((await Url.find({ order: { id: 'ASC' } })).map(String)).toContain(`https://b.example${right}`)
  })

  test('fills the properties of a record, within a scope and over several columns', async () => {
    const map = (names: Record<string, string>) => new Map(Object.entries(names))
    const note = {
      entity: 'Note.title',
      records: { format: 'csv', map: map({ title: '1', body: '2' }) },
    } as const
    const notes = (tenant: string): Entry[] => [
      { row: { title: 'a', body: `x${tenant}` } },
      { row: { title: 'a', body: 'found' } },
      { row: { title: null, body: 'refused' } },
    ]
    for (const [tenant, created] of [
      ['1', 1],
      ['2', 1],
      ['1', 0],
    ] as const) {
      const target = findImportTarget(dataSource, { ...note, set: map({ tenant }) })
      const report = await importLines(dataSource, target, chunksOf(notes(tenant)))
      expect(report).toMatchObject({ created, found: 2 - created, rejected: 1 })
    }
    expect(await dataSource.manager.find(Note, { order: { tenant: 'ASC' } })).toMatchObject([
      { title: 'a', body: 'x1', tenant: 1 },
      { title: 'a', body: 'x2', tenant: 2 },
    ])
    const person = { entity: 'Person', records: { format: 'ndjson', map: map({ first: 'f', last: 'l' }) } } as const
    const people: Entry[] = [{ row: { first: 'Ada', last: 'Lovelace' } }, { row: { first: 'Ada', last: 42 } }]
    const report = await importLines(dataSource, findImportTarget(dataSource, person), chunksOf(people))
    expect(report).toMatchObject({ created: 1, rejected: 1 })
  })

  test('the key of a related row is a scope', async () => {
    const { id } = await dataSource.manager.save(Note, { title: 'lines', body: 'lines' })
    const target = findImportTarget(dataSource, { entity: 'Line', set: new Map([['note', String(id)]]) })
    expect(await importLines(dataSource, target, chunksOf(['a', 'b', 'a']))).toMatchObject({ created: 2, found: 1 })
    expect(() => findImportTarget(dataSource, { entity: 'Line' })).toThrow('--set note=VALUE')
  })

  test('a text that the database refuses is a rejected line, and its neighbours are kept', async () => {
    const report = await run('crowd', ['a', 'b', 'c', 'd', 'a', 'c'])
    expect(report).toMatchObject({ lines: 6, created: 3, found: 2, rejected: 1, collisions: 3 })
    expect(report.rejections).toMatchObject([{ line: 4, reason: expect.stringMatching(/chain for "text" is full/) }])
  })

  test('text with NUL is refused with its place, never quoted', async () => {
    const { rejections } = await run('Page', ['http://c.example/secret\0'])
    expect(rejections).toEqual([{ line: 1, reason: 'it contains U+0000 (code point 23)' }])
  })

  test('the error of a full server comes unchanged, with its place; what is counted is stored', async () => {
    const client = await db.client()
    await client.query(`
      CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE EXCEPTION USING ERRCODE = '53100', MESSAGE = 'could not extend file'; END $$;
      CREATE TRIGGER full_disk BEFORE INSERT ON page FOR EACH ROW
        WHEN (NEW.url = 'http://full.example/4500') EXECUTE FUNCTION full_disk()`)
    const lines = numbered(15_000, (index) => `http://full.example/${index}`)
    const report = await run('Page', lines)
    // The batch before it, and those after it that were at the server already.
    const { created } = report
    expect([3_000, 6_000, 9_000]).toContain(created)
    expect(report.lines).toBe(created)
    expect(report.end).toMatchObject({ kind: 'failed', where: 'lines 3,001 to 6,000' })
    const { error } = report.end as { error: unknown }
    expect(error).toMatchObject({ code: '53100', message: 'could not extend file' })
    const { rows } = await client.query(`select count(*)::int as n from page where url like 'http://full.%'`)
    expect(rows).toEqual([{ n: created }])
    await client.query('DROP TRIGGER full_disk ON page')
    const end = { kind: 'done' }
    expect(await run('Page', lines)).toMatchObject({ created: 15_000 - created, found: created, end })
  })

  test('a list that cannot be read on is told with its place, after what came before is stored', async () => {
    async function* broken(): AsyncGenerator<readonly Line[]> {
      yield numbered(2_000, (index) => `http://broken.example/${index}`)
      throw new Error('the disk is gone')
    }
    const report = await importLines(dataSource, findImportTarget(dataSource, { entity: 'Page' }), broken())
    expect(report).toMatchObject({ created: 2_000 })
    expect(report.end).toMatchObject({
      kind: 'failed',
      error: new Error('the disk is gone'),
      where: 'after line 2,000',
    })
  })

  test('ends after the batch at the server when it is told to', async () => {
    const controller = new AbortController()
    const lines = numbered(50_000, (index) => `http://stopped.example/${index}`)
    const report = await run('Page', lines, { signal: controller.signal, onProgress: () => controller.abort() })
    expect(report.end).toEqual({ kind: 'interrupted' })
    expect(report.lines).toBeLessThanOrEqual(9_000)
    expect(report.created).toBe(report.lines)
  })

  test('hears that it is told to end between two lines, though a normalizer is slow', async () => {
    const controller = new AbortController()
    slowTexts = 0
    async function* lines(): AsyncGenerator<readonly Line[]> {
      // While the first lines are parsed.
      setImmediate(() => controller.abort())
      yield numbered(1_000, String)
    }
    const { signal } = controller
    const report = await importLines(dataSource, findImportTarget(dataSource, { entity: 'Slow' }), lines(), { signal })
    expect(report).toMatchObject({ lines: 0, created: 0, end: { kind: 'interrupted' } })
    expect(slowTexts).toBeGreaterThan(0)
    expect(slowTexts).toBeLessThan(500)
    expect(await dataSource.manager.count(Slow)).toBe(0)
  })

  test.each([
    [
      'three batches of short lines are at the server at once',
      numbered(20_000, (index) => `http://short.example/${index}`),
      3,
    ],
    [
      'long lines go one by one, so that they do not fill the memory',
      numbered(5, (index) => `http://long.example/${`${index}`.repeat(3e6)}`),
      1,
    ],
  ])('%s', async (_, lines, connections) => {
    const own = await new DataSource({ type: 'postgres', url: db.url, entities: [Page] }).initialize()
    try {
      const target = findImportTarget(own, { entity: 'Page' })
      // A batch is not answered before as many are sent as ever are.
      const [holder, observer] = [await db.client(), await db.client()]
      await holder.query(`begin; lock table "${own.getMetadata(Page).tableName}" in exclusive mode`)
      const importing = importLines(own, target, chunksOf(lines, 1))
      await untilBlocked(observer, connections)
      await holder.query('commit')
      expect(await importing).toMatchObject({ created: lines.length, end: { kind: 'done' } })
      const { master } = own.driver as unknown as { master: { totalCount: number } }
      expect(master.totalCount).toBe(connections)
    } finally {
      await own.destroy()
    }
  })

  test('needs no withUniqueText() where the migration was run', async () => {
    const bare = await new DataSource({ type: 'postgres', url: db.url, entities: [Page] }).initialize()
    try {
      const target = findImportTarget(bare, { entity: 'Page' })
      expect(await importLines(bare, target, chunksOf(['http://bare.example/']))).toMatchObject({ created: 1 })
    } finally {
      await bare.destroy()
    }
  })

  test('a missing guard is told before anything is read or written', async () => {
    const client = await db.client()
    await client.query('create schema bare; create table bare.page (id serial, url text not null, title text)')
    const bare = new DataSource({ type: 'postgres', url: db.url, schema: 'bare', entities: [Page] })
    await bare.initialize()
    let read = false
    async function* lines(): AsyncGenerator<readonly Line[]> {
      read = true
      yield ['http://a.example/']
    }
    try {
      const importing = importLines(bare, findImportTarget(bare, { entity: 'Page' }), lines())
      await expect(importing).rejects.toThrow(SchemaDriftError)
    } finally {
      await bare.destroy()
    }
    expect(read).toBe(false)
    expect((await client.query('select from bare.page')).rowCount).toBe(0)
  })
})

describe('findTarget', () => {
  test.each([
    ['Page', 'page', 'url'],
    ['page.url', 'page', 'url'],
    ['Crowded', 'crowd', 'text'],
    ['crowd', 'crowd', 'text'],
    ['Note.body', 'note', 'body'],
    ['Url.url', 'urls', 'url'],
  ])('%s names %s.%s', (entity, table, name) => {
    const { metadata, rows } = findImportTarget(dataSource, { entity })
    expect([metadata.tableName, rows.declaration.name]).toEqual([table, name])
  })

  test.each([
    [
      { entity: 'Nobody' },
      UsageError,
      'Entities with a unique text: "Url", "Page", "Crowded", "Note", "Line", "Person", "Slow".',
    ],
    [{ entity: 'Note' }, UsageError, 'Choose a unique text of Note: --entity Note.title, Note.body.'],
    [{ entity: 'Pgae' }, UsageError, 'Did you mean "Page"?'],
    [{ entity: 'Page.ulr' }, UsageError, 'Page has no property "ulr". Did you mean "url"?'],
    [{ entity: 'Page', set: new Map([['titel', 'red']]) }, UsageError, 'Did you mean "title"?'],
    [{ entity: 'Page.title' }, UsageError, 'Choose a unique text of Page: --entity Page.url.'],
    [{ entity: 'Note.title' }, UsageError, 'A row needs "tenant" for "title" of Note: --set tenant=VALUE'],
    [{ entity: 'Page', set: new Map([['color', 'red']]) }, UsageError, 'Page has no property "color"'],
    [{ entity: 'Person' }, DeclarationError, 'option "parse"'],
    [{ entity: 'Plain' }, DeclarationError, 'declares no unique text'],
  ])('%j is refused', (names, type, message) => {
    const find = () => findImportTarget(dataSource, names)
    expect(find).toThrow(type)
    expect(find).toThrow(message)
  })
})

const ROOT = path.join(__dirname, '../../..')

interface Ended {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

function start(args: readonly string[], databaseUrl = db.url): { child: ChildProcess; ended: Promise<Ended> } {
  const child = spawn(process.execPath, ['--import', 'tsx', 'src/cli/main.ts', ...args], {
    cwd: ROOT,
    env: { ...process.env, DATABASE_URL: databaseUrl },
  })
  // After Ctrl-C nobody reads the rest of the list.
  child.stdin.on('error', () => {})
  return { child, ended: endOf(child) }
}

async function endOf(child: ChildProcessWithoutNullStreams): Promise<Ended> {
  let stdout = ''
  let stderr = ''
  child.stdout.on('data', (data: Buffer) => (stdout += data.toString()))
  child.stderr.on('data', (data: Buffer) => (stderr += data.toString()))
  const [code] = (await once(child, 'close')) as [number | null]
  return { code, stdout, stderr }
}

const IMPORT = ['import', '-d', 'ormconfig.ts', '--entity', 'Url.url']

async function typed(args: readonly string[], input = '', databaseUrl = db.url): Promise<Ended> {
  const { child, ended } = start(args, databaseUrl)
  child.stdin?.end(input)
  return await ended
}

describe('typeorm-unique-text import', () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'refused-lines-'))
  afterAll(() => rmSync(folder, { recursive: true }))

  test('imports standard input, prints the table, and quotes no text', async () => {
    const input = '\uFEFFhttp://cli.example/secret\r\nhttp://CLI.example/secret\r\n\r\nsecret\r\n'
    const { code, stdout, stderr } = await typed([...IMPORT, '-'], input)
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(stdout).toMatch(/^lines +4\ncreated +1\nfound +1\nrejected +1\nblank +1\ncollisions +0\nseconds /)
    expect(stdout).toContain('rejected lines:\n  line 4: it is not an http or https URL\n')
    expect(stdout).not.toContain('secret')
  })

  test('tells wrong usage with exit code 2', async () => {
    const [nothing, entity] = await Promise.all([
      typed([]),
      typed(['import', '-d', 'ormconfig.ts', '--entity', 'Nobody', 'examples/urls.txt']),
    ])
    expect(nothing).toMatchObject({ code: 2, stdout: '' })
    expect(nothing.stderr).toMatch(
      /^Name a command: import, adopt, abandon, doctor, recount, explain, sql\.\nSee typeorm-unique-text --help\.\n$/,
    )
    expect(entity).toMatchObject({ code: 2, stdout: '' })
    expect(entity.stderr).toMatch(/^The DataSource has no entity "Nobody"\. Entities with a unique text: "Url"\.\n/)
  })

  test('tells failures with exit code 1, in one line', async () => {
    const empty = new URL(db.url)
    empty.searchParams.set('options', '-c search_path=nowhere')
    const [drift, dead, list, config] = await Promise.all([
      typed([...IMPORT, 'examples/urls.txt'], '', empty.href),
      typed([...IMPORT, 'examples/urls.txt'], '', 'postgres://postgres@127.0.0.1:1/none'),
      typed([...IMPORT, 'no-such-list']),
      typed(['import', '-d', 'no-such-config.ts', '--entity', 'Url', '-']),
    ])
    for (const { code, stdout } of [drift, dead, list, config])
      expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
    expect(drift.stderr).toMatch(/^Table "urls" is not ready: table "urls" is missing\. .*migration:run\.\n$/)
    expect(dead.stderr).toBe('connect ECONNREFUSED 127.0.0.1:1\n')
    expect(list.stderr).toMatch(/^Cannot open the list: ENOENT.*\n$/)
    expect(config.stderr).toBe('There is no file "no-such-config.ts".\n')
  })

  test('advises to convert a list that cannot be read as lines, and not to try it again', async () => {
    const { code, stderr } = await typed([...IMPORT, '-'], 'http://a.example/\rhttp://b.example/\r')
    expect(code).toBe(1)
    expect(stderr).toContain('Convert it')
    expect(stderr).not.toContain('again')
  })

  test('imports a column of CSV, and refuses records that are none', async () => {
    const input = 'id,"the url"\r\n1,"http://csv.example/a,b"\r\n2,"http://csv.example/c"x\r\n3\r\n'
    const { code, stdout } = await typed([...IMPORT, '--format', 'csv', '--map', 'url=the url', '-'], input)
    expect(code).toBe(0)
    expect(stdout).toMatch(/^records +3\ncreated +1\nfound +0\nrejected +2\n/)
    expect(stdout).toMatch(/^rejected records \(record 1 follows the header\):\n  record 2: .+\n  record 3: /m)
    const other = await typed([...IMPORT, '--format', 'csv', '--map', 'url=url', '-'], input)
    expect(other.code).toBe(1)
    expect(other.stderr).toContain('has no column "url". It has "id", "the url". Name one')
  })

  test('--json prints every event as a line', async () => {
    const input = '{"link":"http://json.example/1"}\n{"link":"secret"}\n'
    const json = [...IMPORT, '--format', 'ndjson', '--map', 'url=link', '--json', '-']
    const { code, stdout, stderr } = await typed(json, input)
    expect([code, stderr]).toEqual([0, ''])
    const events = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as object)
    expect(events.at(-1)).toMatchObject({
      event: 'report',
      end: 'done',
      created: 1,
      rejected: 1,
      rejections: [{ line: 2, reason: 'it is not an http or https URL' }],
    })
    expect(events[0]).toMatchObject({ event: 'progress', lines: 2, created: 1 })
    expect(stdout).not.toContain('secret')
  })

  test('--dry-run counts what an import would, over batches, as a role that may only read', async () => {
    const client = await db.client()
    await client.query(`create role "dry reader" login password 'x'; grant select on urls to "dry reader"`)
    const reader = new URL(db.url)
    Object.assign(reader, { username: 'dry reader', password: 'x' })
    await Url.parse('http://dry.example/3')
    const urls = numbered(4_000, (index) => `http://dry.example/${index}`)
    const input = [...urls, 'HTTP://dry.example:80/2', '', 'secret', ...urls.slice(0, 10), 'secret'].join('\n')
    try {
      const dry = await typed([...IMPORT, '--dry-run', '-'], input, reader.href)
      const wet = await typed([...IMPORT, '-'], input)
      expect([dry.code, dry.stderr, wet.code]).toEqual([0, '', 0])
      expect(dry.stdout).toMatch(/^lines +4,014\nwould be created +3,999\nfound +12\nrejected +2\nblank +1\n/)
      expect(wet.stdout).toMatch(/^lines +4,014\ncreated +3,999\nfound +12\nrejected +2\nblank +1\n/)
      expect(dry.stdout).toContain('  line 4,003: it is not an http or https URL\n')
    } finally {
      await client.query('drop owned by "dry reader"; drop role "dry reader"')
    }
  })

  test('--rejected writes the refused lines as they came, so that they are refused again, or mended', async () => {
    const [latin, cr] = [Buffer.from('http://r.example/\xe9', 'latin1'), 'http://r.example/a\rb']
    const before = numbered(3_500, (index) => `http://r.example/${index}`).join('\n')
    const list = Buffer.concat([Buffer.from(`\uFEFFsecret\r\n${before}\n${cr}\n\n`), latin, Buffer.from('\nftp://é')])
    const expected = Buffer.concat([Buffer.from(`secret\n${cr}\n`), latin, Buffer.from('\nftp://é\n')])
    const [given, refused, again] = ['given', 'refused', 'again'].map((name) => path.join(folder, name)) as [
      string,
      string,
      string,
    ]
    writeFileSync(given, list)
    writeFileSync(refused, 'of an earlier import')
    const over = await typed([...IMPORT, '--rejected', refused, given])
    expect(over).toMatchObject({ code: 2, stdout: '', stderr: expect.stringContaining('a file that is not empty') })
    expect(readFileSync(refused, 'utf8')).toBe('of an earlier import')
    writeFileSync(refused, '')
    const first = await typed([...IMPORT, '--rejected', refused, given])
    expect([first.code, first.stderr]).toEqual([0, ''])
    expect(first.stdout).toMatch(/^lines +3,505\ncreated +3,500\nfound +0\nrejected +4\nblank +1\n/)
    expect(readFileSync(refused)).toEqual(expected)
    expect((await typed([...IMPORT, '--rejected', again, '--dry-run', refused])).stdout).toMatch(/^rejected +4$/m)
    expect(readFileSync(again)).toEqual(expected)
    const itself = await typed([...IMPORT, '--rejected', refused, refused])
    expect(itself).toMatchObject({ code: 2, stderr: expect.stringContaining('a file that is not empty') })
    expect(readFileSync(refused)).toEqual(expected)
  })

  test('--rejected of CSV writes whole records behind the first one, which names the columns', async () => {
    const refused = path.join(folder, 'refused.csv')
    const csv = [...IMPORT, '--format', 'csv', '--map', 'url=url', '--rejected', refused]
    const input = 'note,url\n"a\nb",http://csv.example/1\n"c\nd",secret\ne\n'
    expect((await typed([...csv, '-'], input)).stdout).toMatch(/^rejected +2$/m)
    expect(readFileSync(refused, 'utf8')).toBe('note,url\n"c\nd",secret\ne\n')
    rmSync(refused)
    await typed([...csv, '-'], 'note,url\nf,http://csv.example/1\n')
    expect(readFileSync(refused, 'utf8')).toBe('')
  })

  test('--rejected says how many lines are too long for it, and fails where it cannot write', async () => {
    const long = await typed([...IMPORT, '--rejected', path.join(folder, 'long'), '-'], `${'a'.repeat(2 ** 22 + 1)}\nb`)
    expect([long.code, readFileSync(path.join(folder, 'long'), 'utf8')]).toEqual([1, 'b\n'])
    expect(long.stderr).toBe(
      '\n1 rejected lines are too long for the file of --rejected.\n' +
        '\nEvery line is rejected. Mend the list or the declaration, and run the command again.\n',
    )
    const full = await typed([...IMPORT, '--rejected', '/dev/full', '-'], 'secret\n')
    expect(full).toMatchObject({ code: 1, stderr: expect.stringContaining('Cannot write the rejected lines: ENOSPC') })
    const none = await typed([...IMPORT, '--rejected', path.join(folder, 'no/where'), '-'], 'http://none.example/\n')
    expect(none).toMatchObject({ code: 1, stdout: '', stderr: expect.stringContaining('ENOENT') })
  })

  test('a folder as standard input, and a full disk behind standard output, are failures in one line', async () => {
    const command = [process.execPath, '--import', 'tsx', 'src/cli/main.ts', ...IMPORT, '-']
    const redirected = async (redirection: string): Promise<Ended> =>
      await endOf(
        spawn('sh', ['-c', `"$@" ${redirection}`, 'sh', ...command], {
          cwd: ROOT,
          env: { ...process.env, DATABASE_URL: db.url },
        }),
      )
    const folder = await redirected('< src')
    expect([folder.code, folder.stdout]).toEqual([1, ''])
    expect(folder.stderr).toBe('Standard input is a folder. Redirect a file to it.\n')
    const full = await redirected('< /dev/null > /dev/full')
    expect(full.code).toBe(1)
    expect(full.stderr).toMatch(/^Cannot write the report: ENOSPC.*\n$/)
  })

  test('ends at a table into which it may not insert, instead of counting every line as refused', async () => {
    const client = await db.client()
    await client.query(`create role "import reader" login password 'x'; grant select on urls to "import reader"`)
    const reader = new URL(db.url)
    Object.assign(reader, { username: 'import reader', password: 'x' })
    try {
      const { code, stderr } = await typed(
        [...IMPORT, '-'],
        'http://a.example/new\nhttp://b.example/new\n',
        reader.href,
      )
      expect({ code, stderr }).toMatchObject({ code: 1, stderr: expect.stringContaining('SQLSTATE 42501') })
    } finally {
      await client.query('drop owned by "import reader"; drop role "import reader"')
    }
  })

  test('tells an older Node.js in one line, before it loads what that cannot', async () => {
    const older = `data:text/javascript,${encodeURIComponent(`
      Object.defineProperty(process.versions, 'node', { value: '18.20.4' })
      delete Array.prototype.toSorted`)}`
    const [cli, demo] = await Promise.all(
      ['src/cli/main.ts', 'scripts/demo/start.ts'].map(async (file) => {
        const child = spawn(process.execPath, ['--import', 'tsx', '--import', older, file], { cwd: ROOT })
        return await endOf(child)
      }),
    )
    const stderr = 'Node.js 20.19 or later is needed; this is 18.20.4.\n'
    expect([cli, demo]).toEqual(Array.from({ length: 2 }, () => ({ code: 1, stdout: '', stderr })))
  })

  test('tells a url that is no connection string in one line, without a look-up of its words', async () => {
    const ended = await typed([...IMPORT, 'examples/urls.txt'], '', 'not-a-url')
    expect(ended).toMatchObject({ code: 1, stdout: '' })
    expect(ended.stderr).toMatch(/^The "url" of the DataSource in "ormconfig\.ts" is not a connection string\..*\n$/)
  })

  test('ends at a table whose rows need a value that no line has', async () => {
    const client = await db.client()
    await client.query('alter table urls add column needed integer not null default 0')
    await client.query('alter table urls alter column needed drop default')
    try {
      const { code, stderr } = await typed([...IMPORT, '-'], 'http://a.example/needy\nhttp://b.example/needy\n')
      expect({ code, stderr }).toMatchObject({ code: 1, stderr: expect.stringContaining('23502') })
    } finally {
      await client.query('alter table urls drop column needed')
    }
  })

  test.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const)(
    '%s ends it with exit code %i and no stack trace, and a second run finds what is there',
    async (signal, exitCode) => {
      const host = `${signal.toLowerCase()}.example`
      const { child, ended } = start([...IMPORT, '-'])
      const stdin = child.stdin
      if (!stdin) throw new TypeError('no standard input')
      const list = numbered(20_000, (index) => `http://${host}/${index}\n`).join('')
      // More never comes, and no end either: the command waits at its input.
      stdin.write(list)
      await someRows(host)
      child.kill(signal)
      const { code, stdout, stderr } = await ended
      expect(code).toBe(exitCode)
      expect(stderr).toMatch(/Stopped after line [\d,]+\. The rows counted above are stored\./)
      expect(stderr).not.toMatch(/^ +at /m)
      const created = Number(/^created +([\d,]+)$/m.exec(stdout)?.[1]?.replaceAll(',', ''))
      expect(created).toBeGreaterThan(0)
      const again = await typed([...IMPORT, '-'], list)
      expect(again.code).toBe(0)
      expect(again.stdout).toMatch(new RegExp(`^found +${created.toLocaleString('en-US')}$`, 'm'))
    },
  )
})

/** Waits until the other process has stored something. */
async function someRows(host: string): Promise<void> {
  for (;;) {
    if (await dataSource.manager.existsBy(Url, { host })) return
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}
