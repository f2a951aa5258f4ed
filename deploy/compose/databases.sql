CREATE DATABASE label_studio;
