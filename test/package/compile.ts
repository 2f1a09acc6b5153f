import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { gatePart } from '../support/gate-part'
import {
  type CommandResult,
  type Installation,
  listFiles,
  makeProject,
  type Project,
  type Workspace,
} from './workspace'

/** Versions of the compiler, and where each is. */
const COMPILERS = {
  '5.4': 'tools/node_modules/typescript-5.4/bin/tsc',
  '5.9': 'tools/node_modules/typescript-5.9/bin/tsc',
  '6.0': 'current/node_modules/typescript/bin/tsc',
  '7.0': 'tools/node_modules/typescript-7.0/bin/tsc',
} as const

export type CompilerVersion = keyof typeof COMPILERS

/** Ways in which a project finds the types of a package, and the `type` of its package.json. */
export const MODES = {
  node10: { type: 'commonjs', module: 'commonjs', moduleResolution: 'node10' },
  'node16 CommonJS': { type: 'commonjs', module: 'node16' },
  'node16 ESM': { type: 'module', module: 'node16' },
  'nodenext CommonJS': { type: 'commonjs', module: 'nodenext' },
  'nodenext ESM': { type: 'module', module: 'nodenext' },
  bundler: { type: 'module', module: 'esnext', moduleResolution: 'bundler' },
} as const

export type Mode = keyof typeof MODES

/** Every mode with two versions; 7.0, which has no node10, is five times as fast and takes all the others. */
const MODES_OF: Readonly<Record<CompilerVersion, readonly Mode[]>> = {
  '5.4': ['node10', 'node16 CommonJS', 'node16 ESM', 'bundler'],
  '5.9': ['node10', 'node16 CommonJS', 'node16 ESM', 'bundler'],
  '6.0': ['node10', 'nodenext CommonJS', 'nodenext ESM', 'bundler'],
  '7.0': ['node16 CommonJS', 'node16 ESM', 'nodenext CommonJS', 'nodenext ESM', 'bundler'],
}

/** In the gate the oldest and the newest. This repository and the recipes of the documents are compiled with 6.0. */
const VERSIONS = gatePart(2, ['5.4', '5.9', '7.0', '6.0'] as const)

export const COMBINATIONS: readonly { readonly version: CompilerVersion; readonly mode: Mode }[] = VERSIONS.flatMap(
  (version) => MODES_OF[version].map((mode) => ({ version, mode })),
)

/** A project of the TypeScript fixture, compiled into `dist`. */
export interface Compiled {
  readonly project: Project
  readonly result: CommandResult
  readonly esm: boolean
}

export async function compile(
  workspace: Workspace,
  name: string,
  { version, peers = 'current', ...options }: CompileOptions,
): Promise<Compiled> {
  const compiler = path.join(workspace.folder, COMPILERS[version])
  return await compileWith(workspace[peers], name, { ...options, version, compiler })
}

/** The same with any compiler, wherever it is. */
export async function compileWith(
  installation: Installation,
  name: string,
  { mode, version, databaseUrl = '', compiler }: CompilerOptions,
): Promise<Compiled> {
  const { type, ...modules } = MODES[mode]
  const compilerOptions = {
    target: 'es2022',
    ...modules,
    // TypeScript 6 has node10 no more without it.
    ...(mode === 'node10' && version === '6.0' ? { ignoreDeprecations: '6.0' } : {}),
    rootDir: 'src',
    outDir: 'dist',
    strict: true,
    exactOptionalPropertyTypes: true,
    noUncheckedIndexedAccess: true,
    esModuleInterop: true,
    experimentalDecorators: true,
    // All declarations are looked at by the fast one; what another cannot read in ours, `types.ts` shows.
    skipLibCheck: !version.startsWith('7'),
    types: ['node'],
  }
  const project = await makeProject(installation, name, {
    fixture: 'ts',
    databaseUrl,
    files: {
      'package.json': JSON.stringify({ private: true, type }),
      'tsconfig.json': JSON.stringify({ compilerOptions, include: ['src'] }),
    },
  })
  const result = await project.run('node', [compiler, '-p', '.'])
  return { project, result, esm: type === 'module' }
}

export interface CompileOptions {
  readonly mode: Mode
  readonly version: CompilerVersion
  readonly databaseUrl: string
  /** @default 'current' */
  readonly peers?: 'current' | 'oldest'
}

interface CompilerOptions {
  readonly mode: Mode
  readonly version: string
  readonly databaseUrl?: string
  /** Path of its `tsc`. */
  readonly compiler: string
}

/** Equal for equal programs, which need not be run twice. */
export async function digestOf(folder: string): Promise<string> {
  const digest = createHash('sha256')
  for (const file of await listFiles(folder))
    digest.update(`${file}\0${await readFile(path.join(folder, file), 'utf8')}\0`)
  return digest.digest('hex')
}
