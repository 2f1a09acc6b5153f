import { Type } from 'class-transformer'
import { IsInt, IsNotEmpty, IsOptional, IsString, Max, MaxLength, Min } from 'class-validator'

export class CreateBookmark {
  /** What is a URL, the entity's normalizer decides. */
  @IsString() readonly url!: string
  @IsString() @IsNotEmpty() @MaxLength(200) readonly name!: string
}

export class RenameBookmark {
  @IsString() @IsNotEmpty() @MaxLength(200) readonly name!: string
}

export class ListBookmarks {
  @IsOptional() @IsString() readonly url?: string
  @IsOptional() @Type(() => Number) @IsInt() @Min(1) @Max(100) readonly take: number = 20
  @IsOptional() @Type(() => Number) @IsInt() @Min(0) readonly skip: number = 0
}
