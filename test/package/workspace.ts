import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { chmod, cp, mkdir, mkdtemp, readdir, realpath, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'

const checkout = path.resolve(import.meta.dirname, '../..')
const fixtures = path.join(import.meta.dirname, 'fixtures')
const examples = path.join(checkout, 'examples')

/** What a command gave; the tests say which code they expect. */
export interface CommandResult {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

/** Packages installed in an empty folder as a user would; projects borrow them by a link. */
export interface Installation {
  readonly folder: string
}

/** The tarball, and where it was installed. Everything lives in one temporary folder. */
export interface Workspace {
  readonly folder: string
  /** The tarball's contents. */
  readonly unpacked: string
  /** With the peers that this repository develops against. */
  readonly current: Installation
  /** With the oldest peers that package.json allows. */
  readonly oldest: Installation
  /** Jest, and further versions of the TypeScript compiler. */
  readonly tools: string
  readonly remove: () => Promise<void>
}

/** A folder with sources and a database, in which commands run. */
export interface Project {
  readonly folder: string
  run(command: string, args: readonly string[]): Promise<CommandResult>
}

/** The oldest peers of package.json. */
export const OLDEST_PEERS = { typeorm: '0.3.31', pg: '8.5.1' } as const

const QUIET = ['--prefer-offline', '--no-audit', '--no-fund', '--ignore-scripts', '--loglevel=error']
const OUTPUT_LIMIT_BYTES = 16 * 2 ** 20

/** Builds and packs a copy of the checkout, so that it may be used meanwhile, and installs the tarball. */
export async function openWorkspace(): Promise<Workspace> {
  return await inTemporaryFolder(fill)
}

/** The tarball among other libraries; and, as everything, in one temporary folder. */
export interface Neighbourhood {
  readonly installation: Installation
  readonly remove: () => Promise<void>
}

/** @param name of a folder beside this file, with the lock file of the other libraries */
export async function openNeighbourhood(name: 'libraries' | 'neighbours'): Promise<Neighbourhood> {
  return await inTemporaryFolder(async (temporary) => {
    const folder = path.join(temporary, name)
    await cp(path.join(import.meta.dirname, name), folder, { recursive: true })
    const [tarball] = await allEnded([pack(temporary), npm(folder, ['ci'])])
    await putBeside(path.join(folder, 'node_modules'), tarball)
    return { installation: { folder } }
  })
}

/** As npm would install it, which takes half a minute beside so many packages. package.test.ts lets npm do it. */
async function putBeside(packages: string, tarball: string): Promise<void> {
  const own = path.join(packages, 'typeorm-unique-text')
  await mkdir(own)
  await unpack(tarball, own)
  await symlink(path.join(own, 'dist/cli/main.js'), path.join(packages, '.bin/typeorm-unique-text'))
  await chmod(path.join(own, 'dist/cli/main.js'), 0o755)
}

/** The tarball among the packages of this checkout: nothing is installed, and no registry is needed. */
export async function openBesideOwnPackages(): Promise<Neighbourhood> {
  return await inTemporaryFolder(async (temporary) => {
    const folder = path.join(temporary, 'linked')
    const packages = path.join(folder, 'node_modules')
    await mkdir(path.join(packages, '.bin'), { recursive: true })
    await putBeside(packages, await pack(temporary))
    await linkOthers(path.join(checkout, 'node_modules'), packages)
    await linkOthers(path.join(checkout, 'node_modules/.bin'), path.join(packages, '.bin'))
    return { installation: { folder } }
  })
}

/** Links to the packages in one folder, from another one, but for those that it has. */
export async function linkOthers(from: string, to: string): Promise<void> {
  for (const name of await readdir(from)) {
    if (name.startsWith('.')) continue
    const made = await symlink(path.join(from, name), path.join(to, name)).then(
      () => true,
      () => false,
    )
    if (!made && name.startsWith('@')) await linkOthers(path.join(from, name), path.join(to, name))
  }
}

/** As Promise.all; but when it fails nothing is under way any more that would write into a folder to be removed. */
async function allEnded<T extends readonly Promise<unknown>[]>(
  promises: readonly [...T],
): Promise<{ -readonly [Position in keyof T]: Awaited<T[Position]> }> {
  await Promise.allSettled(promises)
  return await Promise.all(promises)
}

async function inTemporaryFolder<T>(make: (folder: string) => Promise<T>): Promise<T & Pick<Workspace, 'remove'>> {
  const folder = await realpath(await mkdtemp(path.join(tmpdir(), 'unique-text-package-')))
  const remove = async (): Promise<void> => await rm(folder, { recursive: true })
  try {
    return { ...(await make(folder)), remove }
  } catch (error) {
    await remove()
    throw error
  }
}

async function fill(folder: string): Promise<Omit<Workspace, 'remove'>> {
  const tools = path.join(folder, 'tools')
  await cp(path.join(import.meta.dirname, 'tools'), tools, { recursive: true })
  const [tarball] = await allEnded([pack(folder), npm(tools, ['ci'])])
  const unpacked = path.join(folder, 'unpacked')
  await mkdir(unpacked)
  const [current, oldest] = await Promise.all([
    install(path.join(folder, 'current'), [tarball, ...(await ownVersions())]),
    install(path.join(folder, 'oldest'), [
      tarball,
      `typeorm@${OLDEST_PEERS.typeorm}`,
      `pg@${OLDEST_PEERS.pg}`,
      'reflect-metadata@0.2.2',
      await ownVersion('@types/node'),
    ]),
    unpack(tarball, unpacked),
  ])
  return { folder, unpacked, current, oldest, tools }
}

/** A project of its own, with a fixture's files or others, and the packages of an installation. */
export async function makeProject(
  { folder: installed }: Installation,
  name: string,
  { fixture, example, files = {}, databaseUrl = '' }: ProjectOptions,
): Promise<Project> {
  const folder = path.join(path.dirname(installed), 'projects', name)
  await mkdir(folder, { recursive: true })
  const sources = example === undefined ? fixture && path.join(fixtures, fixture) : path.join(examples, example)
  if (sources) await cp(sources, folder, { recursive: true })
  await symlink(path.join(installed, 'node_modules'), path.join(folder, 'node_modules'))
  const own = example === undefined ? { 'package.json': '{ "private": true }' } : {}
  const all: Record<string, string> = { ...own, ...files }
  for (const [file, text] of Object.entries(all)) {
    await mkdir(path.dirname(path.join(folder, file)), { recursive: true })
    await writeFile(path.join(folder, file), text)
  }
  const bin = path.join(folder, 'node_modules/.bin')
  const env = { PATH: `${bin}:${process.env['PATH']}`, DATABASE_URL: databaseUrl }
  return { folder, run: async (command, args) => await execute(command, args, { cwd: folder, env }) }
}

export interface ProjectOptions {
  /** A folder in `fixtures`. */
  readonly fixture?: string
  /** A folder in `examples`, with its own package.json. */
  readonly example?: string
  readonly files?: Readonly<Record<string, string>>
  readonly databaseUrl?: string
}

/** Paths of the files below a folder, with `/`, sorted. */
export async function listFiles(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name)).replaceAll(path.sep, '/'))
    .sort()
}

/** @throws with what the command printed, unless it ended with 0 */
export function succeed(result: CommandResult): CommandResult {
  if (result.code !== 0) throw new Error(`exit code ${result.code}\n${result.stdout}\n${result.stderr}`)
  return result
}

/** Packs a built copy of the checkout. The files of one run of tests share the tarball. */
export async function pack(folder: string): Promise<string> {
  const run = process.env['TEST_PACKED']
  if (run === undefined) return await packInto(folder)
  const [making, whole, tarball] = [path.join(run, 'making'), path.join(run, 'whole.tgz'), path.join(folder, 'own.tgz')]
  while (!existsSync(whole)) {
    const isFirst = await mkdir(making).then(
      () => true,
      () => false,
    )
    if (!isFirst) await setTimeout(100)
    else {
      try {
        await rename(await packInto(making), whole)
      } finally {
        await rm(making, { recursive: true })
      }
    }
  }
  await cp(whole, tarball)
  return tarball
}

async function packInto(folder: string): Promise<string> {
  const copy = path.join(folder, 'build')
  await mkdir(copy)
  const wanted = /^(?:src|scripts|docs|package\.json|tsconfig(?:\.build)?\.json|[A-Z]+(?:\.md)?)$/
  for (const name of await readdir(checkout)) {
    if (wanted.test(name)) await cp(path.join(checkout, name), path.join(copy, name), { recursive: true })
  }
  await symlink(path.join(checkout, 'node_modules'), path.join(copy, 'node_modules'))
  await npm(copy, ['pack', '--pack-destination', folder], [])
  const [tarball] = (await readdir(folder)).filter((name) => name.endsWith('.tgz'))
  if (!tarball) throw new Error('npm pack made no tarball')
  return path.join(folder, tarball)
}

async function unpack(tarball: string, folder: string): Promise<void> {
  succeed(await execute('tar', ['-xzf', tarball, '--strip-components', '1'], { cwd: folder }))
}

/** Installs packages in a new folder, as a user would. */
export async function install(folder: string, packages: readonly string[]): Promise<Installation> {
  await mkdir(folder)
  await writeFile(path.join(folder, 'package.json'), '{ "private": true }')
  await npm(folder, ['install', ...packages])
  return { folder }
}

/** The versions that this checkout has, which npm has in its cache. */
async function ownVersions(): Promise<string[]> {
  const names = ['typeorm', 'pg', 'reflect-metadata', '@types/node', 'tsx', 'typescript']
  return await Promise.all(names.map(ownVersion))
}

/** A package at the version that this checkout has. */
export async function ownVersion(name: string): Promise<string> {
  const { default: manifest } = (await import(path.join(checkout, 'node_modules', name, 'package.json'), {
    with: { type: 'json' },
  })) as { default: { version: string } }
  return `${name}@${manifest.version}`
}

async function npm(folder: string, args: readonly string[], flags = QUIET): Promise<void> {
  succeed(await execute('npm', [...args, ...flags], { cwd: folder }))
}

/** What vitest sets would change what the commands do or print. */
const FOREIGN = /^(?:VITEST|NODE_ENV$|NODE_OPTIONS$|FORCE_COLOR$|DEV$|PROD$|MODE$|npm_(?:lifecycle|package)_)/

async function execute(
  command: string,
  args: readonly string[],
  { cwd, env }: { readonly cwd: string; readonly env?: NodeJS.ProcessEnv },
): Promise<CommandResult> {
  const kept = Object.fromEntries(Object.entries(process.env).filter(([name]) => !FOREIGN.test(name)))
  const options = { cwd, env: { ...kept, NO_COLOR: '1', ...env }, maxBuffer: OUTPUT_LIMIT_BYTES }
  return await new Promise((resolve, reject) => {
    execFile(command, [...args], options, (error, stdout, stderr) => {
      const code = error === null ? 0 : error.code
      if (typeof code === 'number') resolve({ code, stdout, stderr })
      else reject(new Error(`${command} ${args.join(' ')}: no exit code\n${stderr}`, { cause: error }))
    })
  })
}
