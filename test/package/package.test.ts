import { createHash } from 'node:crypto'
import { readdir, readFile, stat } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest'
import { createDatabase, dropDatabase, inDatabase, runOnce } from '../support/databases'
import { COMBINATIONS, compile, type Compiled, digestOf } from './compile'
import { runQuickStart } from './quick-start'
import { listFiles, makeProject, OLDEST_PEERS, openWorkspace, succeed, type Workspace } from './workspace'

const PATIENCE = { timeout: 240_000 }

let workspace: Workspace
const opened: Workspace[] = []
const databases: string[] = []

beforeAll(async () => {
  workspace = await openWorkspace()
  opened.push(workspace)
}, PATIENCE.timeout)

afterAll(async () => {
  for (const name of databases) await dropDatabase(inject('serverUrl'), name)
  await Promise.all(opened.map(async ({ remove }) => await remove()))
}, PATIENCE.timeout)

describe.concurrent('a project that installs the tarball', () => {
  test('in JavaScript, CommonJS, runs the quick start and the import command', PATIENCE, async () => {
    const databaseUrl = await newDatabase('cjs')
    const project = await makeProject(workspace.current, 'cjs', {
      fixture: 'cjs',
      databaseUrl,
      files: { 'list.txt': 'http://example.com/1\nno URL\nHTTP://EXAMPLE.com/1\n' },
    })
    const start = { dataSource: 'data-source.js', app: 'app.js', esm: false }
    await runQuickStart(project, start)
    succeed(await project.run('typeorm', ['schema:sync', '-d', start.dataSource]))
    const command = ['import', '-d', start.dataSource, '--entity', 'Page.url', 'list.txt']
    succeed(await project.run('typeorm-unique-text', command))
    expect(await runOnce(databaseUrl, 'select url from page')).toEqual([{ url: 'http://example.com/1' }])
  })

  test('in JavaScript, ESM, runs the quick start', PATIENCE, async () => {
    const project = await makeProject(workspace.current, 'esm', {
      fixture: 'esm',
      databaseUrl: await newDatabase('esm'),
      files: { 'package.json': '{ "private": true, "type": "module" }' },
    })
    await runQuickStart(project, { dataSource: 'data-source.mjs', app: 'app.mjs', esm: true })
  })

  test('with Jest in CommonJS, and nothing transformed, finds and creates', PATIENCE, async () => {
    const project = await makeProject(workspace.current, 'jest', {
      fixture: 'jest',
      databaseUrl: await newDatabase('jest'),
    })
    const jest = path.join(workspace.tools, 'node_modules/jest/bin/jest.js')
    const { stderr } = succeed(await project.run('node', [jest, '--runInBand', '--rootDir', '.']))
    expect(stderr).toMatch(/Tests: +3 passed, 3 total/)
  })

  test('gets the same classes by require and by import', PATIENCE, async () => {
    const project = await makeProject(workspace.current, 'identity', { fixture: 'identity' })
    const { instances, ...entries } = JSON.parse(succeed(await project.run('node', ['identity.mjs'])).stdout) as {
      instances: boolean[]
    } & Record<string, { names: string[]; same: string[]; imported: string[] }>
    expect(Object.keys(entries)).toHaveLength(11)
    for (const { names, same, imported } of Object.values(entries)) {
      expect(same).toEqual(names)
      expect(imported).toEqual(expect.arrayContaining(names))
    }
    expect(instances).toEqual([true, true, true])
  })
})

describe.concurrent('TypeScript', () => {
  const compiled: Compiled[] = []

  test.each(COMBINATIONS)('$version, $mode: every type is found and right', PATIENCE, async ({ mode, version }) => {
    const name = `${version} ${mode}`
    const one = await compile(workspace, name, { mode, version, databaseUrl: databaseUrlOf(name) })
    compiled.push(one)
    expect(one.result).toEqual({ code: 0, stdout: '', stderr: '' })
  })

  // After the others: not concurrent with them.
  test.sequential('each of the programs that came of it runs the quick start', PATIENCE, async () => {
    const programs = new Map<string, Compiled>()
    for (const one of compiled) programs.set(await digestOf(path.join(one.project.folder, 'dist')), one)
    expect(new Set([...programs.values()].map(({ esm }) => esm))).toEqual(new Set([true, false]))
    await Promise.all(
      [...programs.values()].map(async ({ project, esm }) => {
        await newDatabase(path.basename(project.folder))
        await runQuickStart(project, { dataSource: 'dist/data-source.js', app: 'dist/app.js', esm })
      }),
    )
  })

  test(`the oldest peers are enough: ${JSON.stringify(OLDEST_PEERS)}`, PATIENCE, async () => {
    const options = { mode: 'node16 CommonJS', version: '7.0', peers: 'oldest' } as const
    const databaseUrl = await newDatabase('oldest')
    const { project, result } = await compile(workspace, 'oldest peers', { ...options, databaseUrl })
    expect(result).toEqual({ code: 0, stdout: '', stderr: '' })
    for (const [name, version] of Object.entries(OLDEST_PEERS)) {
      const manifest = path.join(project.folder, 'node_modules', name, 'package.json')
      expect(JSON.parse(await readFile(manifest, 'utf8'))).toMatchObject({ version })
    }
    await runQuickStart(project, { dataSource: 'dist/data-source.js', app: 'dist/app.js', esm: false })
  })
})

describe('the tarball', () => {
  test('holds these folders, and no tests', async () => {
    const files = await listFiles(workspace.unpacked)
    const places = files.map((file) => (file.includes('/') ? `${path.posix.dirname(file)}/` : file))
    const features = ['names/', 'numbers/', 'once/', 'stream/', 'url/', 'typeorm-calls/']
    const entries = ['', 'adopt/', 'doctor/', 'text/', ...features]
    expect([...new Set(places)].sort()).toEqual(
      [
        'CHANGELOG.md',
        'CONTRIBUTING.md',
        'LICENSE',
        'README.md',
        'SECURITY.md',
        'docs/',
        'docs/pictures/',
        'package.json',
        ...[...entries, 'cli/', 'shared/'].map((folder) => `dist/${folder}`),
      ].sort(),
    )
    expect(files.filter((file) => /test|spec|fixture|\.env|\.npmrc|\.log$/.test(file))).toEqual([])
  })

  // A second copy of any tree is more than this.
  test('is small', async () => {
    const tarballs = (await readdir(workspace.folder)).filter((name) => name.endsWith('.tgz'))
    expect(tarballs).toHaveLength(1)
    const { size } = await stat(path.join(workspace.folder, ...tarballs))
    expect(size).toBeLessThanOrEqual(450_000)
    expect((await listFiles(workspace.unpacked)).length).toBeLessThanOrEqual(130)
  })

  test('holds every file that its README and its documents link to', async () => {
    const files = await listFiles(workspace.unpacked)
    const documents = files.filter((file) => file.endsWith('.md'))
    const dead: string[] = []
    for (const document of documents) {
      const text = await readFile(path.join(workspace.unpacked, document), 'utf8')
      const links = [...text.matchAll(/\]\((?!https?:|#)([^)#]+)/gu)].map(([, link = '']) => link)
      const paths = links.map((link) => path.posix.join(path.posix.dirname(document), link))
      dead.push(...paths.filter((link) => !files.includes(link)).map((link) => `${document}: ${link}`))
    }
    // The page needs its site: npm's page and GitHub find it in the repository.
    expect(dead).toEqual(['README.md: site/try.md'])
  })

  test('holds compiled files and no maps of them, nor the figures of the benchmark', async () => {
    const files = await listFiles(workspace.unpacked)
    expect(files.filter((file) => /\.map$|^src\/|benchmark/.test(file))).toEqual([])
    const scripts = files.filter((file) => /\.m?js$/.test(file))
    const naming = await Promise.all(
      scripts.map(async (file) =>
        (await readFile(path.join(workspace.unpacked, file), 'utf8')).includes('sourceMapping'),
      ),
    )
    expect(scripts.filter((_, index) => naming[index])).toEqual([])
  })

  test('brings normalize-url within it, with its licence, and asks for peers only', async () => {
    const read = async (file: string) => await readFile(path.join(workspace.unpacked, file), 'utf8')
    const manifest = JSON.parse(await read('package.json')) as Record<string, Record<string, string> | undefined>
    expect(manifest['dependencies'] ?? {}).toEqual({})
    expect(Object.keys(manifest['peerDependencies'] ?? {}).sort()).toEqual(['pg', 'typeorm'])
    expect(manifest['peerDependenciesMeta']).toBeUndefined()
    const installed = await listFiles(path.join(workspace.current.folder, 'node_modules'))
    expect(installed.filter((file) => file.startsWith('normalize-url/'))).toEqual([])
    for (const file of ['normalize-url.LICENSE.txt', 'shared/url.js']) {
      expect(await read(`dist/${file}`)).toMatch(/Copyright \(c\) Sindre Sorhus/)
    }
  })

  test('names no machine, and no address but those it should', async () => {
    const machine: string[] = []
    const addresses = new Set<string>()
    const [checkout, home] = [path.resolve(import.meta.dirname, '../..'), path.dirname(workspace.folder)]
    for (const file of await listFiles(workspace.unpacked)) {
      const text = await readFile(path.join(workspace.unpacked, file), 'utf8')
      if ([checkout, workspace.folder, `${home}/unique-text`].some((place) => text.includes(place))) machine.push(file)
      for (const [address] of text.matchAll(
        /(?<=https?:\/\/(?:\w+:\w+@)?)(?!\w+:\w+@)[\w.-]+|[\w.-]+@[\w-]+\.[a-z]{2,}/g,
      ))
        addresses.add(address)
    }
    expect(machine).toEqual([])
    // Names that documents may use: RFC 2606.
    const foreign = [...addresses].filter((address) => !/[.@]example$|(?:^|[.@])example\.(?:com|org)$/i.test(address))
    expect(foreign.sort()).toEqual(KNOWN_ADDRESSES)
  })
})

const KNOWN_ADDRESSES: readonly string[] = [
  'docs.aws.amazon.com',
  'docs.citusdata.com',
  'github.com',
  'sindresorhus.com',
  'sindresorhus@gmail.com',
  'typeorm.io',
  'www.cockroachlabs.com',
  // The namespace of SVG, in the pictures.
  'www.w3.org',
]

function databaseNameOf(project: string): string {
  return `T package ${createHash('sha256').update(`${project}${process.pid}`).digest('hex').slice(0, 12)}`
}

function databaseUrlOf(project: string): string {
  return inDatabase(inject('serverUrl'), databaseNameOf(project))
}

async function newDatabase(project: string): Promise<string> {
  const name = databaseNameOf(project)
  databases.push(name)
  await createDatabase(inject('serverUrl'), name)
  return databaseUrlOf(project)
}
